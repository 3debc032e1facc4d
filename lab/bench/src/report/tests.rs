//! Tests of reports: the figures are the measured ones, and every format shows all of them.

use hdrhistogram::Histogram;

use serde_json::json;

use super::*;
use crate::args::{Common, Pin};
use crate::harness::series::{Results, Sample, Series};
use crate::harness::{Experiment, Format};
use crate::report::row::Cell;
use crate::roster::{self, Own};
use crate::workload::{Distribution, Workload};

const FIELDS: [&str; 34] = [
    "structure",
    "workload",
    "keys",
    "count",
    "threads",
    "machine",
    "seed",
    "runs",
    "mops",
    "mops_min",
    "mops_max",
    "ns_per_op",
    "cpu_ns_per_op",
    "bytes_per_key",
    "distribution",
    "ratio",
    "baseline",
    "ops",
    "batch",
    "pin",
    "misses",
    "partial",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "update_percent",
    "external_work",
    "paired_ratio",
    "seconds",
    "latency",
    "details",
    "ops_asked",
];

/// The workloads of the tests' results.
const WORKLOADS: [Workload; 2] = [Workload::Load, Workload::C];

fn experiment(baseline: Option<&str>) -> Experiment<'static> {
    let mut experiment = Experiment::new("YCSB", &Format::OF_MAPS, &Common::plain(2), 3, baseline, &[]).unwrap();
    for workload in WORKLOADS {
        let distribution = Some(Distribution::Zipf(0.99));
        let cell = Cell { distribution, count: Some(5000), ..Cell::of(workload.name()) };
        experiment.cell(cell, vec![("batch", json!(if workload == Workload::C { 8 } else { 0 }))]);
    }
    experiment.facts = vec![("keys", json!(KEYS))];
    (experiment.seed, experiment.pin) = (9, Pin::Fill);
    experiment
}

const KEYS: &str = "<words & \"more\">.txt";

/// Makes runs with these speeds. The CPU time and memory of each run follow from its number.
fn series(name: &str, workload: Workload, threads: usize, speeds: &[f64]) -> Series {
    let info = roster::indexes::<Own>(false).find(|info| info.name == name).unwrap();
    let cell = WORKLOADS.iter().position(|known| *known == workload).unwrap();
    let sample = |(run, &mops): (usize, &f64)| Sample {
        run,
        mops,
        figures: vec![
            ("cpu_ns_per_op", Some(100.0 + run as f64)),
            ("bytes_per_key", (run != 1).then_some(20.0 + run as f64)),
        ],
    };
    let samples: Vec<Sample> = speeds.iter().enumerate().map(sample).collect();
    let ops = 1000 * samples.len();
    Series { ops, samples, ..Series::new(info.name, info.ours, cell, threads) }
}

fn some_results() -> Results {
    let mut timed = series("hydralist", Workload::C, 2, &[40.0, 10.0, 20.0]);
    let mut latency = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
    (1..=1000).for_each(|ns| latency.record(ns).unwrap());
    timed.latency = Some(latency);
    let series = vec![
        timed,
        series("hydralist", Workload::Load, 2, &[1.0, 2.0]),
        series("rwlock-btreemap", Workload::C, 2, &[10.0, 5.0, 4.0]),
        series("mutex-btreemap", Workload::C, 2, &[1.0, 1.0, 2.0]),
        series("hydralist", Workload::C, 1, &[8.0]),
    ];
    Results { series, ..Results::default() }
}

fn some_rows() -> Vec<Row> {
    experiment(None).rows(&some_results())
}

/// Returns the texts of a report without notes.
fn look(partial: bool) -> Look<'static> {
    Look::of("YCSB", Vec::new(), partial)
}

fn find<'a>(rows: &'a [Row], structure: &str, workload: &str, threads: usize) -> &'a Row {
    let wanted = |row: &&Row| row.name == structure && row.cell.workload == workload && row.threads == threads;
    rows.iter().find(wanted).unwrap()
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn rows_are_by_threads_then_workload_then_index() {
    let rows = some_rows();
    let places: Vec<_> = rows.iter().map(|row| (row.threads, &*row.cell.workload, row.text("structure"))).collect();
    let expected = [
        (1, "c", "hydralist"),
        (2, "load", "hydralist"),
        (2, "c", "hydralist"),
        (2, "c", "rwlock-btreemap"),
        (2, "c", "mutex-btreemap"),
    ];
    assert_eq!(places, expected);
}

#[test]
fn figures_are_medians_of_the_runs() {
    let rows = some_rows();
    let row = find(&rows, "hydralist", "c", 2);
    assert_eq!((row.speeds(), row.whole("runs")), ([20.0, 10.0, 40.0], Some(3)));
    assert_eq!(row.real("ns_per_op"), Some(100.0), "2 threads, 20 million operations a second together");
    assert_eq!(row.real("cpu_ns_per_op"), Some(101.0));
    assert_eq!(row.real("bytes_per_key"), Some(21.0), "of the two runs that could tell");
    let latencies = ["p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|key| row.whole(key));
    assert_eq!(latencies, [500, 900, 990, 1000].map(Some));
    assert_eq!(["count", "seed", "ops"].map(|key| row.whole(key)), [5000, 9, 1000].map(Some));
    assert_eq!(row.text("machine"), "native");
    let batch = |workload| find(&rows, "hydralist", workload, 2).whole("batch");
    assert_eq!((batch("c"), batch("load")), (Some(8), Some(0)), "only C has batches");
}

#[test]
fn ratios_are_to_the_fastest_peer() {
    let rows = some_rows();
    let row = find(&rows, "hydralist", "c", 2);
    // The ratio is that of the medians, 20 / 5, which a reader of the report can recompute. The paired ratio is the
    // median of 40 / 10, 10 / 5 and 20 / 4.
    assert_eq!((row.real("ratio"), row.text("baseline")), (Some(4.0), "rwlock-btreemap"));
    assert_eq!(row.real("paired_ratio"), Some(4.0));
    assert_eq!(find(&rows, "rwlock-btreemap", "c", 2).real("ratio"), Some(1.0));
    let alone = find(&rows, "hydralist", "c", 1);
    assert!(alone.fields["ratio"].is_null() && alone.fields["baseline"].is_null(), "no peer ran with one thread");
}

#[test]
fn a_chosen_baseline_is_the_baseline() {
    let rows = experiment(Some("mutex-btreemap")).rows(&some_results());
    let row = find(&rows, "hydralist", "c", 2);
    // The ratio is 20/1; the paired ratio is the median of 40/1, 10/1 and 20/2.
    assert_eq!((row.real("ratio"), row.text("baseline")), (Some(20.0), "mutex-btreemap"));
    assert_eq!(row.real("paired_ratio"), Some(10.0));
    let (table, page) = (text(|out| table::write(&rows, &look(false), out)), html::page(&rows, &look(false)));
    assert!(
        table.contains("20.0 (20.00x)") && !table.contains("10.00"),
        "what is printed is of what is printed: {table}"
    );
    assert!(page.contains("<th>x run by run</th>") && page.contains("<td>10.00</td>"), "{page}");
}

#[test]
fn json_has_every_field_in_order() {
    let rows = some_rows();
    let text = text(|out| row::json(&rows, out));
    assert_eq!(text.lines().count(), rows.len());
    for (line, row) in text.lines().zip(&rows) {
        let mut at = 0;
        for field in FIELDS {
            let found = line[at..].find(&format!("\"{field}\":"));
            at += found.unwrap_or_else(|| panic!("{field} is missing or out of place in {line}"));
        }
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value.as_object().unwrap().len(), FIELDS.len());
        assert_eq!(value["structure"], row.name.as_str());
        assert_eq!(value["keys"], KEYS);
        assert_eq!(value["mops"].as_f64(), Some(row.speeds()[0]));
        assert_eq!(value["ratio"].as_f64(), row.real("ratio"));
        assert_eq!(value["p50_ns"].as_u64(), row.whole("p50_ns"));
    }
}

#[test]
fn csv_has_a_header_and_leaves_out_what_was_not_measured() {
    let rows = some_rows();
    let text = text(|out| row::csv(&rows, true, out));
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.headers().unwrap(), &FIELDS[..]);
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), rows.len());
    let field = |record: usize, name| &records[record][FIELDS.iter().position(|field| *field == name).unwrap()];
    assert_eq!((field(0, "structure"), field(0, "threads"), field(0, "ratio")), ("hydralist", "1", ""));
    assert_eq!((field(2, "mops"), field(2, "p99_ns"), field(3, "p99_ns")), ("20.0", "990", ""));
    assert_eq!(field(0, "keys"), KEYS, "quotes survive");
}

#[test]
fn the_table_shows_figures_and_what_is_wrong() {
    let mut results = some_results();
    results.series[1].misses = 3;
    let rows = experiment(None).rows(&results);
    let text = text(|out| table::write(&rows, &look(true), out));
    for shown in ["C: reads, 8 look-ups at a time; 2 threads", "x rwlock-btreemap", "20.0", "40.0", "4.00", "p99 ns"] {
        assert!(text.contains(shown), "{shown:?} is missing in\n{text}");
    }
    assert!(text.contains("PARTIAL"), "{text}");
    assert!(text.lines().any(|line| line.contains("hydralist") && line.contains(" 3 ")), "misses are told:\n{text}");
    let clean = self::text(|out| table::write(&some_rows(), &look(false), out));
    assert!(!clean.contains("PARTIAL") && !clean.contains("missed"), "{clean}");
}

#[test]
fn the_page_needs_nothing_else() {
    let mut results = some_results();
    results.series[1].misses = 3;
    let rows = experiment(None).rows(&results);
    let page = html::page(&rows, &Look { notes: vec!["a <b>".to_owned()], ..look(true) });
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for elsewhere in ["src=", "href=", "url(", "@import", "<script", "<link", "<iframe"] {
        assert!(!page.contains(elsewhere), "the page has {elsewhere}");
    }
    assert_eq!(page.matches("<svg").count(), 2 * 2, "a chart for each workload, at two widths");
    let (summary, rest) = page.split_once("<h2>Summary</h2>").unwrap().1.split_once("<h2>").unwrap();
    assert_eq!(rest.matches("<tr>").count(), 2 + rows.len(), "a line for each row and two headers");
    assert!(summary.matches("<table>").count() == 2 && summary.contains("<td><b>20.0 (4.00x)</b></td>"), "{summary}");
    assert_eq!(page.matches("<table>").count(), page.matches("<div class=\"scroll\"").count(), "no table is cut");
    for (at, key) in page.match_indices("font-size:") {
        let size = page[at + key.len()..].split([';', '}']).next().unwrap();
        let pixels: Option<u32> = size.strip_suffix("px").map(|pixels| pixels.parse().unwrap());
        assert!(pixels.is_none_or(|pixels| pixels >= 14), "{size} is small");
    }
    assert!(page.contains("&lt;words &amp; &quot;more&quot;&gt;.txt") && !page.contains("<words"));
    assert!(page.contains("<p>a &lt;b&gt;</p>") && page.contains(" UTC, seed 9, pinning fill"));
    assert!(page.contains("Partial:") && page.contains("hydralist missed 3 present keys in workload load"));
}

#[test]
fn three_digits_are_enough() {
    assert_eq!([123.4, 12.34, 1.234, 0.1234, 100.0, 10.0].map(digits), ["123", "12.3", "1.23", "0.123", "100", "10.0"]);
    assert_eq!([0.01234, 0.001, 0.000_012_34].map(digits), ["0.0123", "0.00100", "0.0000123"], "what is slow is not 0");
    assert_eq!([0.0, 1.234e-9].map(digits), ["0", "1.23e-9"]);
}

/// A reader never sees half a file, and no temporary file remains.
#[test]
fn files_are_replaced_as_a_whole() {
    let folder = std::env::temp_dir().join(format!("archipelago-replaced-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("table.md");
    let old = "old".repeat(1 << 18);
    replace(&path, &old).unwrap();
    // A reader that has opened the old file reads it to its end.
    let mut reader = std::fs::File::open(&path).unwrap();
    replace(&path, "new").unwrap();
    let mut read = String::new();
    std::io::Read::read_to_string(&mut reader, &mut read).unwrap();
    assert!(read == old || cfg!(windows), "{} of {} bytes", read.len(), old.len());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        replace(&link, "by the link").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "by the link");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        // A link to a missing file stays, too, and the check makes and removes that file.
        std::fs::remove_file(&path).unwrap();
        try_to_write(&link).unwrap();
        assert!(link.symlink_metadata().is_ok() && !path.exists());
        replace(&link, "anew").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "anew");
        replace(Path::new("/dev/null"), "nothing").unwrap();
        std::fs::remove_file(&link).unwrap();
    }
    assert!(replace(&folder.join("no/such"), "").is_err());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing but the file");
    std::fs::remove_dir_all(folder).unwrap();
}
