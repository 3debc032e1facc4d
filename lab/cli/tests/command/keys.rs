//! Keys of files and of standard input.

use super::*;

#[test]
fn key_files_that_are_missing_or_empty_are_told() {
    let empty = Temporary::new("empty", b"");
    let said = sentence(quick(&["--keys", empty.path()], b""));
    assert!(said.contains(empty.path()) && said.contains("one key per line"), "{said}");
    let missing = format!("{}-missing", empty.path());
    let said = sentence(quick(&["--keys", &missing], b""));
    assert!(said.contains(&missing) && said.contains("--keys takes int, clustered, sequential, email"), "{said}");
    let said = sentence(quick(&["--keys", "-"], b""));
    assert!(said.contains("standard input is empty"), "{said}");
    let few = Temporary::new("few", b"one\ntwo\n");
    let said = sentence(quick(&["--keys", few.path(), "--count", "3"], b""));
    assert!(said.contains("--count 3 is more than the file has: 2 distinct keys"), "{said}");
}

#[test]
fn keys_come_from_standard_input_and_from_files() {
    let mut text: Vec<u8> = (0..300).flat_map(|n| format!("key {n}\n").into_bytes()).collect();
    text.extend(b"key 7\nkey 7\n\xff\x00\xfe\n\n");
    let args = ["--workload", "load,c", "--format", "json"];
    let file = Temporary::new("keys", &text);
    for (source, name, input) in [("-", "stdin", &text[..]), (file.path(), file.path(), b"")] {
        let output = quick(&[&args, &["--keys", source][..]].concat(), input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("2 lines repeat an earlier one and are used once"), "{said}");
        let lines = printed(output);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        for line in lines.lines() {
            assert!(line.contains(r#""structure":"hydralist""#) && line.contains(r#""count":302"#), "{line}");
            assert!(line.contains(&format!("\"keys\":{name:?}")) && line.contains(r#""misses":0"#), "{line}");
        }
    }
}

#[test]
fn every_workload_finds_its_keys_in_every_format() {
    for keys in ["int", "clustered", "sequential", "email"] {
        let args = ["--keys", keys, "--count", "2k", "--workload", "all", "--format", "json"];
        let lines = printed(quick(&args, b""));
        let workloads: Vec<bool> = ["load", "a", "b", "c", "f", "d", "e", "grow"]
            .into_iter()
            .zip(lines.lines())
            .map(|(name, line)| line.contains(&format!(r#""workload":"{name}""#)) && line.contains(r#""misses":0"#))
            .collect();
        assert_eq!(workloads, [true; 8], "{lines}");
    }
    let report = Temporary::new("report.html", b"");
    let csv = ["--count", "2k", "--workload", "c", "--format", "csv", "--latency", "--report", report.path()];
    let lines = printed(quick(&csv, b""));
    assert!(lines.starts_with("structure,workload,keys,count,threads,machine,seed,runs,mops"), "{lines}");
    assert_eq!(lines.lines().count(), 2);
    assert!(std::fs::read_to_string(report.path()).unwrap().contains("<svg"));
    let table = printed(quick(&["--count", "2k", "--workload", "c"], b""));
    assert!(table.contains("C: reads; 1 thread, 2000 int keys") && table.contains("hydralist"), "{table}");
}

/// The command reports if not all keys of a file are loaded, or if keys end with an invisible character. A file may
/// have any name.
#[cfg(target_os = "linux")]
#[test]
fn what_becomes_of_the_keys_of_a_file_is_told() {
    use std::os::unix::ffi::OsStringExt;

    let text: Vec<u8> = (0..300).flat_map(|n| format!("key {n}\r\n").into_bytes()).collect();
    let path = [
        std::env::temp_dir().into_os_string().into_vec(),
        format!("/archipelago-{}-", std::process::id()).into(),
        vec![0xff],
    ];
    let path = PathBuf::from(std::ffi::OsString::from_vec(path.concat()));
    std::fs::write(&path, text).unwrap();
    let report = Temporary::new("of-keys.html", b"");
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    command
        .args(QUICK)
        .args(["--workload", "load,e", "--format", "json", "--report", report.path(), "--keys"])
        .arg(&path);
    let output = command.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(" of 300 keys are loaded; the others are held back"), "{said}");
    assert!(said.contains("300 lines end with a carriage return"), "{said}");
    let lines = printed(output);
    assert!(lines.contains(r#""misses":0"#) && lines.contains('\u{fffd}'), "{lines}");
    assert!(std::fs::read_to_string(report.path()).unwrap().contains('\u{fffd}'));
}
