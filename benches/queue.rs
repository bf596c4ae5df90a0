//! The queue: payloads of 1 KiB from the shaper through the line to a backend that takes them.
//!
//! What a payload costs, beside its bytes: pushed, claimed, shipped, committed; and, on disk,
//! written, read and erased, with the file that is made for it and goes again.

use crate::lanes::Yard;
use crate::step::{Run, Step};
use anyhow::Result;
use pointsman::lane::{self, Config, OnDisk, SpoolConfig, Terms};
use pointsman::origin::{Origin, Protocol};
use pointsman::units::{Size, Span};
use pointsman::waybill::Via;
use protocols::{Batch, Encode, Measure, Number, Point, Skip, UnixNanos};
use std::sync::Arc;

/// Every step of it.
pub const STEPS: &[Step] = &[
    Step::once("memory", PAYLOADS, memory).each("payload"),
    Step::once("disk", PAYLOADS, disk).each("payload"),
];

fn memory() -> Result<Run> {
    let mut yard = yard(&Config::default(), None)?;
    let batch = batch();
    Ok(Box::new(move || {
        push(&yard, &batch);
        yard.deliver(PAYLOADS)
    }))
}

/// The backend is away until all is on disk, but for what the shipper has in hand.
fn disk() -> Result<Run> {
    let dir = tempfile::tempdir()?;
    let config = Config {
        memory: Some(Size::kib(64)),
        spool: Some(OnDisk::On(SpoolConfig::default())),
        ..Config::default()
    };
    let mut yard = Some(yard(&config, Some(dir.path()))?);
    let batch = batch();
    Ok(Box::new(move || {
        let _kept = &dir;
        yard.take().map_or(0, |yard| by_disk(yard, &batch))
    }))
}

fn by_disk(mut yard: Yard, batch: &Batch) -> usize {
    yard.answer(false);
    push(&yard, batch);
    let book = Arc::clone(yard.lane.book());
    yard.runtime.block_on(async {
        while (book.spooled.get() as usize) < PAYLOADS {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    yard.answer(true);
    let delivered = yard.deliver(PAYLOADS);
    let Yard { runtime, lane, mut running, .. } = yard;
    drop(lane);
    runtime.block_on(async {
        running.drained().await;
        running.settled().await;
    });
    delivered
}

fn push(yard: &Yard, batch: &Batch) {
    let origin = Origin::new("api", Protocol::Opentsdb);
    let via = Arc::new(Via { route: "all".into(), rewrite: None });
    let mut front = yard.lane.front(0, UnixNanos(0), &origin, Terms::default());
    divan::black_box(batch).iter().for_each(|point| _ = front.take(&point, 0, &via));
}

fn batch() -> Batch {
    let mut batch = Batch::new();
    for n in 0..PAYLOADS {
        batch.begin("r").finish(Measure::Reading(Number::U64(n as u64)), None, "");
    }
    batch
}

/// Every point is a payload.
fn yard(config: &Config, dir: Option<&std::path::Path>) -> Result<Yard> {
    let hour = Some(Span::secs(3600));
    let config = Config {
        batch: lane::Batch { points: Some(1), bytes: None },
        timeout: hour,
        flush: hour,
        ..config.clone()
    };
    Yard::new("stdout", &config, Filler(vec![b'x'; BODY]), dir)
}

/// Writes the same bytes for every point.
struct Filler(Vec<u8>);

impl Encode for Filler {
    fn encode(&mut self, _: &Point<'_>, out: &mut Vec<u8>) -> Result<(), Skip> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn lines(&self, _: &[u8]) -> usize {
        1
    }
}

const PAYLOADS: usize = 256;
/// Less than what is copied by one instruction that callgrind counts for each byte.
const BODY: usize = 1 << 10;
