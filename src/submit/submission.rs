//! One run of the command: file after file, each from where it is known to be.

use super::Arguments;
use super::batches::Batches;
use super::book::Book;
use super::convoy::Convoy;
use super::form::Form;
use super::format::Format;
use super::meter::Meter;
use super::progress::{Asked, Points, Progress, is_progress, place_of};
use super::report::Report;
use super::shipment::Stopped;
use super::source::{self, Identity, Known, Opened};
use crate::client::{self, Client};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What is the same for all files.
pub(super) struct Submission<'a> {
    arguments: &'a Arguments,
    /// Without what we have written beside them.
    files: Vec<&'a PathBuf>,
    client: Client,
}

impl<'a> Submission<'a> {
    pub(super) fn new(
        arguments: &'a Arguments,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let place = arguments.place.clone().within(environment);
        let variable = |name: &str| environment.get(name).map_or("", String::as_str);
        let run = [(client::TASK, variable("TASK_ID")), (client::RUN, variable("RUN_ID"))];
        let client = Client::new(&place, arguments.wait)?.about(&run);
        let files: Vec<_> = arguments.files.iter().filter(|file| !is_progress(file)).collect();
        for file in &files {
            Format::of(file, arguments.format)?;
        }
        Ok(Self { arguments, files, client })
    }

    /// How many files there are.
    pub(super) const fn files(&self) -> usize {
        self.files.len()
    }

    /// One file after the other, until nothing more is taken.
    pub(super) async fn all(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for file in &self.files {
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
        let Opened { source, known, read } =
            source::open(path).map_err(|error| file(error.to_string()))?;
        let points = self.points(path).map_err(file)?;
        let form = form(&points);
        let whole = known.as_ref().map(|known| known.identity.size());
        let book = self.book(path, known, points).map_err(file)?;
        report.resumable = book.is_kept();
        report.earlier_bytes = book.progress.known().0;
        let batches = Batches::new(source, form, book.progress.place()).map_err(file)?;
        let meter = Meter::new(&report.file, whole, read);
        let (began, book) = (Instant::now(), Arc::new(Mutex::new(book)));
        let client = self.client.clone().about(&[(client::FILE, &report.file)]);
        let mut convoy = Convoy::new(client, self.arguments, Arc::clone(&book), meter);
        let result = convoy.run(batches).await;
        let (bytes, totals) = Book::lock(&book).progress.known();
        report.count(&totals, bytes, began.elapsed());
        result
    }

    fn points(&self, path: &Path) -> Result<Points, String> {
        let Arguments { prefix, series, format, .. } = self.arguments;
        let format = Format::of(path, *format)?;
        let series = format.series(path, series.as_ref());
        Ok(Points { format, prefix: prefix.clone(), series })
    }

    /// What is known of the file from earlier runs.
    fn book(&self, path: &Path, known: Option<Known>, points: Points) -> Result<Book, String> {
        let Arguments { wait, state, again, .. } = self.arguments;
        let asked = Asked { to: self.client.address(), points, wait: *wait };
        let Some(file) = known else {
            let new = Progress::new(Identity::default(), asked, Some(rand::random()));
            return Ok(Book::new(new, None));
        };
        let at = place_of(path, state.as_deref());
        if *again {
            let new = Progress::new(file.identity, asked, Some(rand::random()));
            return Ok(Book::new(new, Some(at)));
        }
        let told = |why: String| format!("{}: {why}", at.display());
        let before = Progress::read(&at, &file).map_err(told)?;
        let before = before.map(|before| before.asked_for(&asked)).transpose().map_err(told)?;
        let progress =
            before.flatten().unwrap_or_else(|| Progress::new(file.identity, asked, None));
        Ok(Book::new(progress, Some(at)))
    }
}

fn form(points: &Points) -> Form {
    match points.format {
        Format::Jsonl => Form::lines(&points.prefix),
        Format::Csv => Form::table(&points.prefix, points.series.clone()),
    }
}
