//! `--jobs`: measures in several processes at a time. A simulation runs on one thread, and what ran before in its process
//! may change its result, since statics keep their content. So each set-up has a process of its own, which runs this
//! command with `--cell`. The process measures all rows that begin with this set-up: for trees of millions of keys,
//! setting up takes longer than all runs of a row.

use std::collections::HashSet;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;

use super::cells::{Begin, share_setup};
use super::data::{Figure, Paper, Side};
use super::done::Done;
use super::{Plan, again, chosen, plan};
use crate::args::{Cell, SimPapers};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::tell;
use crate::sim::sink::{Out, Stamps};

/// Measurements that have no rows yet, and share a set-up.
pub struct Job<'a> {
    paper: &'a Paper,
    cells: Vec<Cell>,
    /// The first of them, for messages.
    first: String,
}

impl Job<'_> {
    /// Returns what is measured, for messages.
    fn what(&self) -> String {
        match self.cells.len() - 1 {
            0 => self.first.clone(),
            1 => format!("{}, and a row that begins alike", self.first),
            more => format!("{}, and {more} rows that begin alike", self.first),
        }
    }
}

/// The first measurement of a job.
struct First {
    plan: Rc<Plan>,
    contender: usize,
    threads: usize,
}

impl First {
    fn begin(&self) -> Begin<'_> {
        (&self.plan.contenders[self.contender], &self.plan.setting, self.threads)
    }
}

/// Measures what has no row in `out`, in `jobs` processes at a time. Each process measures what shares a set-up, and at
/// its end appends its rows to the file of `out`, also if this process has been killed. A measurement that fails leaves
/// no row. After an interrupt no process is started.
///
/// # Errors
/// If a process cannot be started, or the rows cannot be read.
pub fn measure(papers: &[Paper], args: &SimPapers, jobs: usize, stamps: &Stamps, out: &mut Out) -> Result<(), Failure> {
    run_all(&missing(papers, args, None, stamps, out)?, args, jobs)?;
    out.read()?;
    if let Some(again) = again(args) {
        run_all(&missing(papers, &again, Some(args), stamps, out)?, &again, jobs)?;
        out.read()?;
    }
    Ok(())
}

fn run_all(missing: &[Job<'_>], args: &SimPapers, jobs: usize) -> Result<(), Failure> {
    let (count, next) = (missing.len(), Mutex::new(missing.iter().enumerate()));
    let work = || -> Result<(), Failure> {
        while let Some((number, job)) = { next.lock().expect("no panic").next() } {
            if interrupt::requested() {
                break;
            }
            tell(format!("{} of {count}: {}", number + 1, job.what()));
            run(job, args)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(count)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })
}

/// Returns the measurements without rows. Without `first` the claims of all figures need them. With `first` only those
/// claims count that the rows for the arguments `first` do not resolve.
pub fn missing<'a>(
    papers: &'a [Paper],
    args: &SimPapers,
    first: Option<&SimPapers>,
    stamps: &Stamps,
    out: &Out,
) -> Result<Vec<Job<'a>>, Failure> {
    let mut jobs: Vec<(First, Job<'_>)> = Vec::new();
    // Claims of several figures may need the same row.
    let mut planned = HashSet::new();
    for paper in papers {
        for (number, figure) in chosen(paper, args).enumerate() {
            let open = first.map(|first| open_sides(paper, figure, first, stamps, out)).transpose()?;
            let plan = Rc::new(plan(paper, figure, args)?);
            let stamp = stamps.of(&plan.setting);
            for (place, (side, contender)) in plan.sides.iter().enumerate() {
                if open.as_ref().is_some_and(|open| !open.contains(side)) {
                    continue;
                }
                let one = First { plan: plan.clone(), contender: *contender, threads: side.threads };
                let contender = &plan.contenders[*contender];
                let row = format!("{stamp} {} {:?} {}", contender.name, contender.cell.facts(), side.threads);
                if out.done(&stamp, contender, side.threads, &plan.setting).is_some() || !planned.insert(row) {
                    continue;
                }
                let cell = Cell { figure: number, side: place };
                let shares = |(first, job): &&mut (First, Job<'_>)| {
                    job.paper.key == paper.key && share_setup(first.begin(), one.begin())
                };
                if let Some((_, job)) = jobs.iter_mut().find(shares) {
                    job.cells.push(cell);
                    continue;
                }
                let first = format!("{}, {}: {}, {} threads", paper.key, figure.name, side.name, side.threads);
                jobs.push((one, Job { paper, cells: vec![cell], first }));
            }
        }
    }
    Ok(jobs.into_iter().map(|(_, job)| job).collect())
}

/// Returns the sides of the claims that the rows for these arguments do not resolve.
fn open_sides(
    paper: &Paper,
    figure: &Figure,
    args: &SimPapers,
    stamps: &Stamps,
    out: &Out,
) -> Result<Vec<Side>, Failure> {
    let plan = plan(paper, figure, args)?;
    let rows = plan.found(stamps, out);
    Ok(Done::of(figure, &plan, rows).open_sides())
}

/// Runs a measurement in a process of its own.
fn run(job: &Job<'_>, args: &SimPapers) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot run a measurement: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    // A failure is told by the process. The caller measures again what has no row, and reports the failure.
    Command::new(program).args(words(job, args)).stdout(Stdio::null()).status().map_err(failed)?;
    Ok(())
}

/// Returns the arguments of the process.
fn words(job: &Job<'_>, args: &SimPapers) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["sim", "papers", "--only", &job.paper.key].map(Into::into).to_vec();
    let mut folder = OsString::from("--folder=");
    folder.push(&args.folder);
    words.push(folder);
    let mut option = |name: &str, value: &str| words.push(format!("--{name}={value}").into());
    args.figure.iter().for_each(|figure| option("figure", figure));
    args.program.iter().for_each(|program| option("program", program));
    args.from.iter().for_each(|program| option("from", program));
    args.sweep.iter().for_each(|texts| option("sweep", texts));
    args.later.iter().for_each(|times| option("later", &times.to_string()));
    option("runs", &args.runs.to_string());
    option("seed", &args.seed.to_string());
    option("cell", &job.cells.iter().map(Cell::to_string).collect::<Vec<_>>().join(","));
    words.extend(args.paper.then(|| "--paper".into()));
    words.extend(args.sizes.then(|| "--sizes".into()));
    words.extend(args.out.iter().flat_map(|out| ["--out".into(), out.into()]));
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command as Cmd, Sim};
    use crate::sim::papers::repeat::MEASURED_BY;
    use crate::sim::papers::tests::{TINY, args, one};
    use crate::sim::papers::{data, execute};

    /// The arguments of each process choose its side, and the rows of all processes are those that the table needs.
    #[test]
    fn the_rows_of_all_processes_are_the_table() {
        let folder = one("jobs", TINY);
        let text = Some(String::new());
        let (rows, figure) = (folder.join("rows"), Some("Figure".to_owned()));
        let program = Some("the program of this test".to_owned());
        let all = SimPapers { sweep: text, figure, paper: true, out: Some(rows.clone()), program, ..args(&folder) };
        let stamps = Stamps::of_program("the program of this test").unwrap();
        let papers = data::read(&folder, None).unwrap();
        let mut out = Out::open(&rows).unwrap();
        let jobs = missing(&papers, &all, None, &stamps, &out).unwrap();
        assert_eq!(jobs.len(), 4);
        for job in &jobs {
            let words = [OsString::from("archipelago")].into_iter().chain(words(job, &all));
            let Ok(Cli { command: Some(Cmd::Sim { what }) }) = Cli::try_parse_from(words) else {
                panic!("{}", job.first)
            };
            let Sim::Papers(one) = *what else { panic!("{}", job.first) };
            assert_eq!((&one.cell, one.only.as_deref()), (&job.cells, Some("tiny")));
            assert_eq!((&one.sweep, one.paper, &one.figure, one.runs), (&all.sweep, true, &all.figure, 1));
            assert_eq!(one.program, all.program);
            if crate::sim::SIMULATED {
                execute(&one).unwrap();
            }
        }
        out.read().unwrap();
        let left = missing(&papers, &all, None, &stamps, &out).unwrap().len();
        assert_eq!(left, if crate::sim::SIMULATED { 0 } else { 4 });
        // Any program judges the rows that belong to that program, and no others.
        let table = folder.join("table.md");
        let judged = |program: &str| {
            let program = Some(program.to_owned());
            execute(&SimPapers { judge: true, program, write: Some(table.clone()), ..all.clone() })
                .map(|_| std::fs::read_to_string(&table).unwrap())
                .map_err(|failure| failure.to_string())
        };
        if crate::sim::SIMULATED {
            let text = judged("the program of this test").unwrap();
            assert!(
                !text.contains("not run") && text.contains("rows of the program the program of this test,"),
                "{text}"
            );
        }
        let there = std::fs::read(&table).ok();
        let failure = judged("another program").unwrap_err();
        assert!(failure.contains("no rows of the program another program for 3 of 3 claims of tiny; "), "{failure}");
        assert!(judged("no/such file").unwrap_err().contains("--program no/such file: "));
        assert_eq!(std::fs::read(&table).ok(), there, "the table stays as it is");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_row_of_two_figures_is_measured_once() {
        let figure = &TINY[TINY.find("[[figure]]").unwrap()..];
        let folder = one("twice", &format!("{TINY}{}", figure.replace("Figure 1", "Figure 2")));
        let (papers, rows) = (data::read(&folder, None).unwrap(), folder.join("rows"));
        assert_eq!(papers[0].figure.len(), 2);
        let (args, out) = (args(&folder), Out::open(&rows).unwrap());
        assert_eq!(missing(&papers, &args, None, &Stamps::own(), &out).unwrap().len(), 4);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// What begins alike is measured by one process, whose rows are those of processes of their own.
    #[test]
    fn workloads_that_begin_alike_are_one_job() {
        let head = &TINY[..TINY.find("[[figure]]").unwrap()];
        let figure = |percent: u32, more: &str| {
            format!(
                "[[figure]]\nname = \"{percent}{more}\"\nsection = \"§1\"\nwhat = \"a tree\"\nthreads = 2\n\
                 run = \"blink --count 300 --update-percent {percent} --warm 1 --min-ops 0 {more}\"\n\
                 claim = [{{ ahead = \"default\", behind = \"standard\" }}]\n"
            )
        };
        let figures =
            [figure(0, "--micros 9"), figure(25, "--micros 15"), figure(50, "--micros 9 --pin spread")].concat();
        let folder = one("alike", &format!("{head}{figures}"));
        let papers = data::read(&folder, None).unwrap();
        let program = Some("p".to_owned());
        let with = |rows: &str| SimPapers { out: Some(folder.join(rows)), program: program.clone(), ..args(&folder) };
        let (together, stamps) = (with("together"), Stamps::of_program("p").unwrap());
        let rest = |out: &Out| missing(&papers, &together, None, &stamps, out).unwrap();
        let mut out = Out::open(&folder.join("together")).unwrap();
        let cells: Vec<String> =
            rest(&out).iter().map(|job| job.cells.iter().map(Cell::to_string).collect::<Vec<_>>().join(",")).collect();
        assert_eq!(cells, ["0:0,1:0", "0:1,1:1", "2:0", "2:1"], "with `spread` threads have other places");
        if crate::sim::SIMULATED {
            let cells = |cells: &[&str]| cells.iter().map(|cell| cell.parse().unwrap()).collect();
            let failure = execute(&SimPapers { cell: cells(&["0:0", "2:0"]), ..together.clone() }).unwrap_err();
            assert!(failure.to_string().contains("do not share a set-up"), "{failure}");
            // A row that is there is not measured again.
            execute(&SimPapers { cell: cells(&["1:1"]), ..together.clone() }).unwrap();
            for job in &rest(&out) {
                execute(&SimPapers { cell: job.cells.clone(), ..together.clone() }).unwrap();
            }
            execute(&with("apart")).unwrap();
            out.read().unwrap();
            assert!(rest(&out).is_empty());
            let hashes = |rows: &str| {
                let out = Out::open(&folder.join(rows)).unwrap();
                let mut hashes: Vec<_> = out.rows().map(|fields| fields.get("hash").unwrap().to_string()).collect();
                hashes.sort();
                hashes
            };
            assert_eq!((hashes("together").len(), hashes("together")), (6, hashes("apart")));
            // Another program takes over what it repeats. The first row is as if this program had made one step more.
            let text = std::fs::read_to_string(folder.join("together")).unwrap();
            std::fs::write(folder.join("together"), text.replacen("\"events\":", "\"events\":1", 1)).unwrap();
            let (program, from) = (Some("q".to_owned()), vec!["p".to_owned()]);
            let other = SimPapers { program, from, ..together.clone() };
            let mut out = Out::open(&folder.join("together")).unwrap();
            let jobs = missing(&papers, &other, None, &Stamps::of_program("q").unwrap(), &out).unwrap();
            assert_eq!(jobs.len(), 4);
            for job in &jobs {
                execute(&SimPapers { cell: job.cells.clone(), ..other.clone() }).unwrap();
            }
            out.read().unwrap();
            let by: Vec<_> = out.rows().skip(6).map(|fields| fields.get(MEASURED_BY).is_some()).collect();
            assert_eq!((by.len(), by.iter().filter(|taken_over| **taken_over).count()), (6, 5), "{by:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Memory that another figure lacks is no reason to refuse a row.
    #[test]
    fn a_process_asks_for_the_memory_of_its_own_rows() {
        let more = "[[figure]]\nname = \"Figure 2\"\nsection = \"§2\"\nwhat = \"too many keys\"\nthreads = 1\n\
             run = \"ycsb --count 1000000000000\"\nclaim = [{ ahead = \"art\", behind = \"hydralist\" }]\n";
        let folder = one("memory", &format!("{TINY}{more}"));
        let cell = |text: &str| SimPapers {
            cell: vec![text.parse().unwrap()],
            out: Some(folder.join("rows")),
            ..args(&folder)
        };
        let refused = |args: SimPapers| execute(&args).unwrap_err().to_string();
        if crate::sim::SIMULATED {
            execute(&cell("0:0")).unwrap();
            for failure in [refused(args(&folder)), refused(cell("1:0"))] {
                assert!(failure.contains("Figure 2: 1000000000000 items"), "{failure}");
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_cell_is_two_numbers() {
        assert_eq!("3:1".parse(), Ok(Cell { figure: 3, side: 1 }));
        for text in ["", "3", "3:", ":1", "a:1", "-1:1"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }
}
