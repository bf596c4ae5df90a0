//! `pointsman submit FILE…`: points from files, to a gateway.
//!
//! ```text
//! thread: file ─► decompressed ─► rows ─► batches ─► at most two wait ─► requests ─► progress
//! ```
//!
//! A file of JSON lines or a table (CSV) is read once, in constant memory, and sent as JSON lines to
//! `/v1/points`. Each request has a key that follows from the file and its place in it, and how far it
//! is is kept beside the file: a run that was interrupted, in whatever way, goes on where it was, and
//! no point counts twice. The exit status is 0 if every line was accepted, 1 if not, 2 if the
//! question makes no sense.

mod batches;
mod meter;
mod progress;
mod report;
mod shipment;
mod source;
mod totals;

use crate::client::{self, Client, Place};
use crate::units::Span;
use batches::{Batch, Batches, Form};
use clap::{Args, ValueEnum};
use meter::Meter;
use progress::{Asked, Progress, place_of};
use protocols::csv;
use report::Report;
use source::{Identity, Opened, hash};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What to submit.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Files of JSON lines (.jsonl, .ndjson, .json) or tables (.csv), perhaps compressed (.gz); `-`
    /// is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Where to.
    #[command(flatten)]
    pub place: Place,
    /// What the files are, if their names do not say so
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Stands before the name of every series
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub prefix: String,
    /// The series of tables without a column `name`; by default as the file is called
    #[arg(long, value_name = "NAME")]
    pub series: Option<String>,
    /// Wait until every backend has the points
    #[arg(long)]
    pub wait: bool,
    /// How long one request is tried
    #[arg(long, default_value = "60s", value_parser = Span::parse, value_name = "SPAN")]
    pub timeout: Span,
    /// Where it is kept how far each file is; by default beside it
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Submit files once more that were submitted, whatever is known of them
    #[arg(long)]
    pub again: bool,
    /// How the report looks
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub report: Look,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// A table whose first line names the columns.
    Csv,
}

/// How the report looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Look {
    /// For people.
    #[default]
    Text,
    /// One object.
    Json,
}

/// What to print and how to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printout {
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
    /// The exit status.
    pub status: u8,
}

/// Runs the command; blocks.
pub fn run(arguments: &Arguments, environment: &BTreeMap<String, String>) -> Printout {
    let submission = match Submission::new(arguments, environment) {
        Ok(submission) => submission,
        Err(usage) => return Printout::failed(USAGE, &usage),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let reports = match runtime {
        Ok(runtime) => runtime.block_on(submission.all(&arguments.files)),
        Err(error) => return Printout::failed(FAILED, &error.to_string()),
    };
    let out = match arguments.report {
        Look::Text => reports.iter().map(Report::text).collect(),
        Look::Json => report::json(&reports),
    };
    let well = reports.iter().all(Report::all_is_well) && reports.len() == arguments.files.len();
    Printout { out, err: String::new(), status: if well { 0 } else { FAILED } }
}

impl Printout {
    fn failed(status: u8, why: &str) -> Self {
        Self { out: String::new(), err: format!("error: {why}\n"), status }
    }
}

/// What is the same for all files.
struct Submission<'a> {
    arguments: &'a Arguments,
    to: String,
    client: Client,
}

/// Why a file was not gone through.
enum Stopped {
    /// It is the file's own fault.
    File(String),
    /// No other file would fare better.
    All(String),
}

impl<'a> Submission<'a> {
    fn new(
        arguments: &'a Arguments,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let place = arguments.place.clone().within(environment);
        let variable = |name: &str| environment.get(name).map_or("", String::as_str);
        let run = [(client::TASK, variable("TASK_ID")), (client::RUN, variable("RUN_ID"))];
        let client = Client::new(&place, arguments.wait)?.about(&run);
        for file in &arguments.files {
            format_of(file, arguments.format)?;
        }
        Ok(Self { arguments, to: place.to().to_owned(), client })
    }

    /// One file after the other, until nothing more is taken.
    async fn all(&self, files: &[PathBuf]) -> Vec<Report> {
        let mut reports = Vec::new();
        for file in files {
            let mut report = Report::new(&file.display().to_string());
            let stopped = self.file(file, &mut report).await.err();
            report.complete = stopped.is_none();
            let ends = matches!(stopped, Some(Stopped::All(_)));
            report.problem = stopped.map(|(Stopped::File(why) | Stopped::All(why))| why);
            reports.push(report);
            if ends {
                break;
            }
        }
        reports
    }

    async fn file(&self, path: &Path, report: &mut Report) -> Result<(), Stopped> {
        let file = |error: String| Stopped::File(error);
        let Opened { source, identity, read } =
            source::open(path).map_err(|error| file(error.to_string()))?;
        let form = self.form(path).map_err(file)?;
        let whole = identity.as_ref().map(Identity::size);
        let book = self.book(path, identity).map_err(file)?;
        let from = book.progress.place();
        report.earlier_bytes = from.offset;
        let batches = Batches::new(source, form, from).map_err(file)?;
        let meter = Meter::new(&report.file, whole, read);
        let began = Instant::now();
        let client = self.client.clone().about(&[(client::FILE, &report.file)]);
        let mut convoy = Convoy::new(self, client, book, meter);
        let result = convoy.run(batches).await;
        let progress = &Book::lock(&convoy.book).progress;
        report.count(&progress.totals, progress.place().offset, began.elapsed());
        result
    }

    fn form(&self, path: &Path) -> Result<Form, String> {
        let Arguments { prefix, series, format, .. } = self.arguments;
        Ok(match format_of(path, *format)? {
            Format::Jsonl => Form::lines(prefix),
            Format::Csv => Form::table(prefix, series.clone().or_else(|| csv::series_of(path))),
        })
    }

    /// What is known of the file from earlier runs.
    fn book(&self, path: &Path, identity: Option<Identity>) -> Result<Book, String> {
        let Arguments { prefix, series, format, wait, state, again, .. } = self.arguments;
        let asked = Asked {
            to: self.to.clone(),
            format: format!("{:?}", format_of(path, *format)?),
            prefix: prefix.clone(),
            series: series.clone(),
            wait: *wait,
        };
        let Some(identity) = identity else {
            let id = hash(&rand::random::<[u8; 16]>());
            let nobody = Identity::default();
            return Ok(Book { progress: Progress::new(nobody, asked, id), at: None });
        };
        let at = place_of(path, state.as_deref());
        let known = match again {
            true => None,
            false => Progress::read(&at, path, &identity)
                .map_err(|why| format!("{}: {why}; {REMOVE}", at.display()))?,
        };
        // What nobody has acknowledged can be submitted to somebody else, or in another way.
        let known = known.filter(|known| known.asked == asked || known.place().offset > 0);
        if known.as_ref().is_some_and(|known| known.asked != asked) {
            let at = at.display();
            return Err(format!("{at} is of a submission with other options; {REMOVE}"));
        }
        let id = if *again { hash(&rand::random::<[u8; 16]>()) } else { identity.id() };
        let progress = known.unwrap_or_else(|| Progress::new(identity, asked, id));
        Ok(Book { progress, at: Some(at) })
    }
}

/// How far a file is, and where that is written down.
struct Book {
    progress: Progress,
    at: Option<PathBuf>,
}

impl Book {
    /// One that shipments share; nothing is left half done in it.
    fn lock(book: &Mutex<Self>) -> MutexGuard<'_, Self> {
        book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the batch that begins there.
    fn key(&self, start: batches::Place) -> String {
        format!("{}-{}", self.progress.id, start.offset)
    }

    /// Writes down that a batch that ends there is about to be sent.
    fn begin(&mut self, end: batches::Place) {
        self.progress.begin(end.offset);
        self.keep();
    }

    /// Writes it down. Where that cannot be done, points are worth more than being able to go on.
    fn keep(&mut self) {
        let Some(at) = &self.at else { return };
        if let Err(error) = self.progress.write(at) {
            tracing::warn!(file = %at.display(), %error, "an interruption would start anew");
            self.at = None;
        }
    }
}

/// The batches of a file on their way, in order.
struct Convoy<'a> {
    submission: &'a Submission<'a>,
    client: Client,
    book: Arc<Mutex<Book>>,
    meter: Meter,
    shipped: VecDeque<JoinHandle<Result<Batch, String>>>,
    places: usize,
}

impl<'a> Convoy<'a> {
    fn new(submission: &'a Submission<'a>, client: Client, book: Book, meter: Meter) -> Self {
        // Who waits for a backend waits for its batches, and would do so once for each of ours.
        let places = if submission.arguments.wait { WAITING } else { 1 };
        let book = Arc::new(Mutex::new(book));
        Self { submission, client, book, meter, shipped: VecDeque::new(), places }
    }

    async fn run(&mut self, batches: Batches) -> Result<(), Stopped> {
        let (sender, mut read) = mpsc::channel(AHEAD);
        let cuts = Book::lock(&self.book).progress.pending.clone();
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || read_all(batches, &cuts, &sender));
        drop(reader.map_err(|error| Stopped::All(error.to_string()))?);
        let mut ended = false;
        while !ended || !self.shipped.is_empty() {
            tokio::select! {
                batch = read.recv(), if !ended && self.shipped.len() < self.places => match batch {
                    Some(Ok(batch)) => self.ship(batch),
                    Some(Err(why)) => return self.end_with(why).await,
                    None => ended = true,
                },
                shipped = first(&mut self.shipped), if !self.shipped.is_empty() => {
                    self.settle(shipped)?;
                }
            }
        }
        Book::lock(&self.book).keep();
        Ok(())
    }

    fn ship(&mut self, batch: Batch) {
        Book::lock(&self.book).begin(batch.end);
        let patience = self.submission.arguments.timeout.0;
        let shipping = shipment::ship(self.client.clone(), Arc::clone(&self.book), batch, patience);
        self.shipped.push_back(tokio::spawn(shipping));
    }

    fn settle(&mut self, shipped: Result<Batch, String>) -> Result<(), Stopped> {
        self.shipped.pop_front();
        let mut book = Book::lock(&self.book);
        match shipped {
            Ok(batch) => book.progress.settle(batch.end, &batch.totals),
            Err(why) => {
                self.shipped.drain(..).for_each(|shipped| shipped.abort());
                book.keep();
                return Err(Stopped::All(why));
            }
        }
        self.meter.show(book.progress.totals.accepted);
        Ok(())
    }

    /// The rest of the file cannot be read; what was is settled first.
    async fn end_with(&mut self, why: String) -> Result<(), Stopped> {
        while !self.shipped.is_empty() {
            let shipped = first(&mut self.shipped).await;
            self.settle(shipped)?;
        }
        Book::lock(&self.book).keep();
        Err(Stopped::File(why))
    }
}

async fn first(shipped: &mut VecDeque<JoinHandle<Result<Batch, String>>>) -> Result<Batch, String> {
    match shipped.front_mut() {
        Some(first) => first.await.unwrap_or_else(|error| Err(error.to_string())),
        None => std::future::pending().await,
    }
}

/// Reads to the end, or until nobody wants more; batches that were begun before end as they did.
fn read_all(mut batches: Batches, cuts: &[u64], sender: &mpsc::Sender<Result<Batch, String>>) {
    let mut cuts = cuts.iter().copied();
    loop {
        let message = match batches.next(cuts.next()) {
            Ok(None) => return,
            Ok(Some(batch)) => Ok(batch),
            Err(why) => Err(why),
        };
        let ends = message.is_err();
        if sender.blocking_send(message).is_err() || ends {
            return;
        }
    }
}

/// What a file is, by its name if nobody says so.
fn format_of(path: &Path, said: Option<Format>) -> Result<Format, String> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    match (said, plain.rsplit_once('.').map(|(_, ending)| ending)) {
        (Some(format), _) => Ok(format),
        (None, Some("csv")) => Ok(Format::Csv),
        (None, Some("jsonl" | "ndjson" | "json")) => Ok(Format::Jsonl),
        (None, _) if name == "-" => Ok(Format::Jsonl),
        _ => Err(format!("what is {}? say --format jsonl or --format csv", path.display())),
    }
}

const USAGE: u8 = 2;
const FAILED: u8 = 1;
const REMOVE: &str = "say the same again, or --again to submit all of the file once more";

/// How many batches may wait for the network.
const AHEAD: usize = 2;

/// How many requests wait for their points at a time.
const WAITING: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_what_is_in_them() {
        for (path, expected) in [
            ("a.csv", Some(Format::Csv)),
            ("d/A.CSV.gz", Some(Format::Csv)),
            ("a.jsonl", Some(Format::Jsonl)),
            ("a.ndjson.gz", Some(Format::Jsonl)),
            ("-", Some(Format::Jsonl)),
            ("a.txt", None),
            ("csv", None),
        ] {
            assert_eq!(format_of(Path::new(path), None).ok(), expected, "{path}");
        }
        assert_eq!(format_of(Path::new("a.csv"), Some(Format::Jsonl)), Ok(Format::Jsonl));
    }
}
