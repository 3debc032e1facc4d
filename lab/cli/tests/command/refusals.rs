//! What is refused, and the sentences that say why.

use super::*;

#[test]
fn wrong_arguments_are_refused_with_2() {
    let cases: [(&[&str], &str); 9] = [
        (&["--threads", "0"], "not a positive number"),
        (&["--count", "many"], "not a positive number"),
        (&["--format", "xml"], "possible values"),
        (&["--no-such-option"], "unexpected argument"),
        (&["--seed", "x"], "invalid"),
        (&["--batch", "0"], "not a positive number"),
        (&["--batch", "18446744073709551615"], "not 1 to 65_536 keys"),
        (&["--pin", "somewhere"], "possible values"),
        (&["extra"], "unexpected argument"),
    ];
    for (args, says) in cases {
        let said = refused(run(&[&["bench", "ycsb"], args].concat(), b""));
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(refused(run(&["no-such-command"], b"")).contains("no-such-command"));
    assert!(refused(run(&["bench", "verify", "--seconds", "0"], b"")).contains("above 0"));
}

#[test]
fn names_that_are_not_known_are_told_with_those_that_are() {
    let ycsb = |args: &[&str]| sentence(run(&[&["bench", "ycsb", "--count", "10"], args].concat(), b""));
    let said = ycsb(&["--index", "hydralist,nothing"]);
    assert!(said.contains("'nothing'") && said.contains("art, blink"), "{said}");
    let said = ycsb(&["--workload", "a,z"]);
    assert!(said.contains("'z'") && said.contains("load, a, b, c, d, e, f, grow"), "{said}");
    let said = ycsb(&["--distribution", "zipf:0"]);
    assert!(said.contains("zipf:S (S > 0"), "{said}");
    let said = sentence(run(&["bench", "locks", "--lock", "std,ttas", "--baseline", "nosuch"], b""));
    assert!(said.contains("measured are") && said.matches("std").count() == 1, "{said}");
    let said = ycsb(&["--index", "art", "--baseline", "hydralist"]);
    assert!(said.contains("--baseline hydralist is not measured; measured are art"), "{said}");
    let said = sentence(run(&["bench", "verify", "--index", "nothing"], b""));
    assert!(said.contains("'nothing'"), "{said}");
}

/// An index without scans is left out of a run with scans.
#[test]
fn an_index_without_scans_runs_no_scans() {
    let run = |indexes: &str, workloads: &str| {
        run(
            &["bench", "ycsb", "--count", "100", "--ops", "100", "--threads", "1", "--runs", "1", "--index", indexes]
                .into_iter()
                .chain(["--workload", workloads, "--format", "csv"])
                .collect::<Vec<_>>(),
            b"",
        )
    };
    let said = refused(run("cuckoo-like", "c,e"));
    assert!(said.contains("cuckoo-like is left out: it has no scans, which the workload e needs"), "{said}");
    assert!(said.contains("none of the chosen indexes takes these keys and workloads"), "{said}");
    let lines = printed(run("art,cuckoo-like", "c,e"));
    assert!(lines.contains("art,e,") && !lines.contains("cuckoo-like"), "{lines}");
    assert!(printed(run("cuckoo-like", "load,a,b,c,d,f")).contains("cuckoo-like,f,"));
}

#[test]
fn an_impossible_topology_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    let said = sentence(command.arg("machine").env("ARCHIPELAGO_TOPOLOGY", "round").output().unwrap());
    assert!(said.contains("ARCHIPELAGO_TOPOLOGY"), "{said}");
}

#[test]
fn more_memory_than_there_is_is_not_asked_for() {
    // The last count's bytes overflow 64 bits, so that a wrapping product would be small.
    for count in ["900G", "126347562148695560"] {
        let said = sentence(quick(&["--count", count], b""));
        assert!(said.contains("try a smaller --count"), "{said}");
    }
    let measurements: [&[&str]; 9] = [
        &["nr", "--count", "900G"],
        &["nr", "--count", "1M", "--replicas", "1M"],
        &["sets", "--structure", "list", "--count", "900G"],
        &["sets", "--structure", "hash", "--count", "10", "--buckets", "900G"],
        &["euno", "--count", "900G"],
        &["blink", "--count", "900G"],
        &["txn", "--count", "900G"],
        &["cache", "--count", "900G"],
        &["blink", "--count", "18446744073709551615"],
    ];
    // 65,535 warehouses take 16 TiB. The bytes of the third number would wrap to none.
    let warehouses: [&[&str]; 4] = [
        &["--workload", "all", "--whole", "--warehouses", "65535"],
        &["--workload", "smallbank,tpcc-pair", "--warehouses", "65535"],
        &["--workload", "tpcc", "--warehouses", "70368744177664"],
        &["--workload", "tpcc", "--small", "--warehouses", "65536"],
    ];
    for (args, says) in warehouses.into_iter().zip(["fewer --warehouses", "fewer --warehouses", "65_535", "65_535"]) {
        let said = refused(run(&[&["bench", "txn"], args, &["--threads", "1"]].concat(), b""));
        assert!(said.contains(says), "{args:?}: {said}");
    }
    let said = refused(run(&["bench", "euno", "--workload", "orders", "--warehouses", "1G"], b""));
    assert!(said.contains("65_535 warehouses"), "{said}");
    // No trace is made for a machine on which it cannot run.
    let said = refused(run(&["sim", "cache", "--workload", "trace-zipf", "--count", "100G"], b""));
    assert!(said.contains("cargo sim"), "{said}");
    for args in measurements {
        let said = refused(run(&[&["bench"], args, &["--threads", "1"]].concat(), b""));
        assert!(said.contains("try a smaller --count"), "{args:?}: {said}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told() {
    let file = Temporary::new("no-folder", b"");
    let path = format!("{}/report.html", file.path());
    let output = quick(&["--count", "100", "--workload", "c", "--report", &path], b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write the report") && said.contains(&path), "{said}");
}

/// If a store cannot be loaded, the complete rows of the other stores are still printed.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_loaded_loses_no_rows() {
    let line = "bench txn --store lock,silo-logged-hydralist --workload ycsb --update-percent 20 --count 100 --millis 10 \
                --threads 1 --runs 1 --format json";
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    let output = command.args(line.split_whitespace()).env("TMPDIR", "/proc").output().unwrap();
    let (rows, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(rows.lines().count() == 1 && rows.contains(r#""structure":"lock""#), "{rows}");
    assert!(said.lines().last().unwrap().starts_with("archipelago: silo-logged-hydralist: "), "{said}");
}

/// Thread counts that no machine has, and thread counts without enough memory, are refused at once.
#[test]
fn threads_that_cannot_be_there_are_refused() {
    let commands = [
        "bench ycsb --index art --count 10 --ops 10",
        "bench nr --workload dictionary --method sl --count 10 --millis 1",
        "bench sets --structure hash --mechanism rcu --count 10 --stuck-reader",
        "bench locks --lock ttas --millis 1",
        "bench blink --technique default --count 10 --millis 1",
        "bench euno --index art --count 10 --millis 1",
    ];
    for command in commands {
        let args: Vec<&str> = command.split(' ').chain(["--threads", "1,100000"]).collect();
        let said = sentence(run(&args, b""));
        assert!(said.contains("--threads 100000: this machine has"), "{command}: {said}");
        // Stacks take room in the address space.
        #[cfg(target_os = "linux")]
        {
            let limited = format!("ulimit -v 2000000; exec \"$0\" {command} --threads 1000");
            let sh = Command::new("sh").args(["-c", &limited, env!("CARGO_BIN_EXE_archipelago")]).output().unwrap();
            let said = sentence(sh);
            assert!(said.contains("a thread cannot be started"), "{command}: {said}");
        }
    }
}

/// Without the peers, their names are refused, with a message that says how to build them.
#[cfg(not(feature = "peers"))]
#[test]
fn what_needs_the_peers_says_so() {
    for args in [&["bench", "nr", "--method", "lf-crossbeam"][..], &["bench", "ycsb", "--index", "masstree"]] {
        let said = sentence(run(args, b""));
        assert!(said.contains("feature 'peers'"), "{said}");
    }
}
