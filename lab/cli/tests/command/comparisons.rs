//! Measurements that are compared with earlier ones.

use super::*;

#[test]
fn every_measurement_is_compared_with_an_earlier_one() {
    for measurement in MEASUREMENTS {
        let args: Vec<&str> = measurement.split(' ').chain(["--threads", "1", "--runs", "2"]).collect();
        let before = printed(run(&[&args[..], &["--format", "json"]].concat(), b""));
        // Pretends that the earlier run was faster than possible, and then that it was slower: than 0, too, since it may be
        // that the thread gets no processor in a run.
        for (speed, says) in [("1e9", "SLOWER: "), ("-1", "faster: ")] {
            let (least, most) = (format!(r#""mops_min":{speed},"l":"#), format!(r#""mops_max":{speed},"m":"#));
            let changed = before.replace(r#""mops_min":"#, &least).replace(r#""mops_max":"#, &most);
            let file = Temporary::new("earlier", changed.as_bytes());
            let table = printed(run(&[&args[..], &["--compare", file.path()]].concat(), b""));
            assert!(table.contains(says) && table.contains("Compared with"), "{measurement}: {table}");
        }
        let said = sentence(run(&[&args[..], &["--compare", "/dev/null"]].concat(), b""));
        assert!(said.contains("--compare /dev/null: it is empty"), "{said}");
    }
}

/// Runs that differ in an option which changes what is measured are not compared.
#[test]
fn other_measurements_are_not_compared() {
    let nr = "bench nr --workload dictionary --method nr --update-percent 10 --count 300 --millis 10";
    let cases = [
        (nr, "--replicas 1", "--replicas 2"),
        (nr, "", "--replicas 2"),
        ("bench locks --lock ttas", "--millis 10", "--millis 11"),
        ("bench locks --lock ttas --millis 10", "", "--latency"),
        ("bench sets --structure hash --mechanism rcu --update-percent 20 --seconds 0.01", "", "--latency"),
        ("bench ycsb --index hydralist --workload c --count 1k", "--ops 500", "--ops 600"),
    ];
    for (line, first, second) in cases {
        let args =
            |more: &'static str| [line, more, "--threads 1 --runs 2"].map(str::split_whitespace).into_iter().flatten();
        let before = printed(run(&args(first).chain(["--format", "json"]).collect::<Vec<_>>(), b""));
        let file = Temporary::new("others", before.as_bytes());
        let compared = |more| printed(run(&args(more).chain(["--compare", file.path()]).collect::<Vec<_>>(), b""));
        let (same, other) = (compared(first), compared(second));
        assert!(!same.contains("WARNING"), "{line} {first}: {same}");
        assert!(other.contains("WARNING: nothing was compared"), "{line} {second}: {other}");
    }
}

#[test]
fn what_is_slower_fails_if_that_is_asked_for() {
    let args = "bench locks --lock ttas --write-percent 10 --millis 5 --threads 1".split(' ').collect::<Vec<_>>();
    let run = |more: &[&str]| run(&[&args[..], more].concat(), b"");
    let twice = printed(run(&["--runs", "2", "--format", "json"]));
    let changed = |least: &str, most: &str| {
        let changed = twice.replace(r#""mops_min":"#, &format!(r#""mops_min":{least},"l":"#));
        changed.replace(r#""mops_max":"#, &format!(r#""mops_max":{most},"m":"#))
    };
    let renamed = twice.replace(r#""structure":"ttas""#, r#""structure":"gone""#);
    let cases = [
        ("slower", changed("1e9", "2e9"), "2", "SLOWER: ", 1),
        ("faster", changed("-1", "-1"), "2", "faster: ", 0),
        ("alike", changed("0", "1e9"), "2", "1 within the noise", 0),
        ("renamed", renamed, "2", "WARNING: nothing was compared", 1),
        ("once", twice.clone(), "1", "WARNING: nothing was compared", 1),
    ];
    for (name, earlier, runs, says, code) in cases {
        let file = Temporary::new(&format!("earlier-{name}"), earlier.as_bytes());
        let compare = ["--runs", runs, "--compare", file.path()];
        let table = printed(run(&compare));
        assert!(table.contains(says), "{name}: {table}");
        let output = run(&[&compare[..], &["--fail-on-slower"]].concat());
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains(says) && output.status.code() == Some(code), "{name}: {table}");
    }
    assert!(refused(run(&["--fail-on-slower"])).contains("--compare"), "of what is not compared nothing is slower");
}

/// A printed ratio is the ratio of the printed figures.
#[test]
fn ratios_are_of_what_is_printed() {
    let args =
        "bench locks --lock ttas,std --write-percent 10 --millis 5 --threads 2 --runs 5 --baseline std --format csv";
    let text = printed(run(&args.split(' ').collect::<Vec<_>>(), b""));
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|known| *known == name).unwrap();
    let (mops, ratio, paired) = (column("mops"), column("ratio"), column("paired_ratio"));
    let sections: Vec<Vec<f64>> = lines
        .filter(|line| line[column("workload")] == "sections")
        .map(|line| [mops, ratio, paired].map(|at| line[at].parse().unwrap()).to_vec())
        .collect();
    let [one, base] = &sections[..] else { panic!("{text}") };
    assert!((one[1] - one[0] / base[0]).abs() < 1e-9 && base[1] == 1.0 && base[2] == 1.0, "{text}");
}
