//! The batches of a file on their way, in order.

use super::Arguments;
use super::batch::Batch;
use super::batches::Batches;
use super::book::{Book, Cuts};
use super::meter::Meter;
use super::shipment::{self, Stopped};
use crate::client::Client;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Those of one file.
pub(super) struct Convoy<'a> {
    client: Client,
    arguments: &'a Arguments,
    book: Arc<Mutex<Book>>,
    meter: Meter,
    shipped: VecDeque<Shipped>,
    places: usize,
}

type Shipped = JoinHandle<Result<Batch, Stopped>>;

impl<'a> Convoy<'a> {
    pub(super) const fn new(
        client: Client,
        arguments: &'a Arguments,
        book: Arc<Mutex<Book>>,
        meter: Meter,
    ) -> Self {
        // A request that waits for a backend waits for its `flush`; several at a time wait only once.
        let places = if arguments.wait { WAITING } else { 1 };
        Self { client, arguments, book, meter, shipped: VecDeque::new(), places }
    }

    pub(super) async fn run(&mut self, batches: Batches) -> Result<(), Stopped> {
        let (sender, mut read) = mpsc::channel(AHEAD);
        let cuts = Book::lock(&self.book).cuts();
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || read_all(batches, cuts, &sender));
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
        // Here, and not in its task, so that none is written down before the one ahead of it.
        let begun = Book::lock(&self.book).begin(&batch);
        let patience = self.arguments.timeout.0;
        let (client, book) = (self.client.clone(), Arc::clone(&self.book));
        let shipping = shipment::ship(client, book, batch, begun, patience);
        self.shipped.push_back(tokio::spawn(shipping));
    }

    fn settle(&mut self, shipped: Result<Batch, Stopped>) -> Result<(), Stopped> {
        self.shipped.pop_front();
        let mut book = Book::lock(&self.book);
        match shipped {
            Ok(batch) => book.settle(&batch),
            Err(why) => {
                self.shipped.drain(..).for_each(|shipped| shipped.abort());
                book.keep();
                return Err(why);
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

async fn first(shipped: &mut VecDeque<Shipped>) -> Result<Batch, Stopped> {
    match shipped.front_mut() {
        Some(first) => first.await.unwrap_or_else(|error| Err(Stopped::All(error.to_string()))),
        None => std::future::pending().await,
    }
}

/// Reads to the end, or until nobody wants more; batches that were begun before end as they did.
fn read_all(mut batches: Batches, mut cuts: Cuts, sender: &mpsc::Sender<Result<Batch, String>>) {
    loop {
        let cut = cuts.next(batches.place().offset);
        let message = match batches.next(cut) {
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

/// How many batches may wait for the network.
const AHEAD: usize = 2;

/// How many requests wait for their points at a time.
const WAITING: usize = 8;
