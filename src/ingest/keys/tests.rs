//! Claims, the disk, and what happens when one of them goes away.

use super::*;
use rusqlite::Connection;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use tempfile::TempDir;

/// A data directory, and the gateways that are started on it one after the other.
struct Rig {
    dir: TempDir,
    is_admitted: Arc<AtomicBool>,
    book: Arc<ListenerBook>,
    clock: Clock,
}

impl Rig {
    fn new() -> Self {
        let clock = Clock::starting_at(UnixNanos::from_secs(1_700_000_000));
        let is_admitted = Arc::new(AtomicBool::new(true));
        Self { dir: tempfile::tempdir().unwrap(), is_admitted, book: Arc::default(), clock }
    }

    fn start(&self) -> Arc<Keys> {
        let is_admitted = Arc::clone(&self.is_admitted);
        let ours =
            move || is_admitted.load(SeqCst).then_some(()).ok_or_else(|| "in use".to_owned());
        Keys::new(self.dir.path(), Box::new(ours), self.clock)
    }

    /// The keys of the listener `api`, with what its section says.
    fn ring(&self, keys: &Arc<Keys>, window: &str, max_keys: u64) -> Keyring {
        let section = serde_json::json!({
            "protocol": "http", "bind": [], "idempotency": { "window": window, "max_keys": max_keys },
        });
        let config = serde_json::from_value(section).unwrap();
        keys.of("api".into(), &config, Arc::clone(&self.book))
    }

    fn usual(&self) -> Keyring {
        self.ring(&self.start(), "1h", 100)
    }

    fn file(&self) -> PathBuf {
        keys_file(self.dir.path())
    }

    fn noticed(&self) -> Vec<(&'static str, u64)> {
        self.book.noticed.counts()
    }
}

const ONE: Fingerprint = Fingerprint([1; 32]);

fn answer(text: &str) -> Answer {
    Answer { status: 200, body: Some(text.to_owned()) }
}

async fn claim(ring: &Keyring, key: &str) -> Claimed {
    let (busy, stop) = (Busy::default(), CancellationToken::new());
    let _work = busy.begin();
    let deadline = Instant::now() + Duration::from_secs(30);
    ring.claim(key, ONE, Patience { deadline, busy: &busy, stop: &stop }).await
}

/// The body that was answered before, `None` for a new key, which is given back.
async fn look(ring: &Keyring, key: &str) -> Option<String> {
    match claim(ring, key).await {
        Claimed::Mine(_) => None,
        Claimed::Answered(before) => before.answer.body.clone(),
        Claimed::Busy => panic!("{key} is at work"),
    }
}

async fn remember(ring: &Keyring, key: &str, text: &str) {
    let Claimed::Mine(mut claim) = claim(ring, key).await else { panic!("{key} is not new") };
    claim.kept(&answer(text));
    claim.record(answer(text)).await;
}

#[tokio::test]
async fn what_was_answered_is_known_also_to_the_next_run() {
    let rig = Rig::new();
    let ring = rig.usual();
    assert_eq!(look(&ring, "a").await, None);
    ring.keys.close().await;
    assert!(!rig.file().exists(), "nothing is remembered, so there is no file");
    remember(&ring, "a", "first").await;
    assert_eq!(look(&ring, "a").await.as_deref(), Some("first"));
    assert_eq!(look(&ring, "b").await, None);
    let again = rig.usual();
    let Claimed::Answered(before) = claim(&again, "a").await else { panic!() };
    assert_eq!(*before, Remembered { fingerprint: ONE, answer: answer("first") });
    assert_eq!((rig.book.keys.get(), rig.noticed()), (1, Vec::new()));
}

#[tokio::test]
async fn listeners_do_not_share_keys() {
    let rig = Rig::new();
    let keys = rig.start();
    let api = rig.ring(&keys, "1h", 100);
    let config = serde_json::from_value(serde_json::json!({"protocol": "http", "bind": []}));
    let other = keys.of("other".into(), &config.unwrap(), Arc::default());
    remember(&api, "a", "api").await;
    assert_eq!(look(&other, "a").await, None);
    remember(&other, "a", "other").await;
    assert_eq!(look(&api, "a").await.as_deref(), Some("api"));
    assert_eq!((rig.book.keys.get(), other.owner.book.keys.get()), (1, 1));
}

/// However many come at once, in whatever order they are polled: one works, and all hear the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_equal_requests_at_once_one_works() {
    let rig = Rig::new();
    let ring = rig.usual();
    for round in 0..20 {
        let worked = Arc::new(AtomicU32::new(0));
        let requests: Vec<_> = (0..50)
            .map(|_| {
                let (ring, worked) = (ring.clone(), Arc::clone(&worked));
                tokio::spawn(async move {
                    match claim(&ring, &format!("key {round}")).await {
                        Claimed::Mine(mut claim) => {
                            let text = worked.fetch_add(1, SeqCst).to_string();
                            tokio::task::yield_now().await;
                            claim.kept(&answer("not certain yet"));
                            tokio::task::yield_now().await;
                            claim.record(answer(&text)).await;
                            Some(text)
                        }
                        Claimed::Answered(before) => before.answer.body.clone(),
                        Claimed::Busy => None,
                    }
                })
            })
            .collect();
        for request in requests {
            assert_eq!(request.await.unwrap().as_deref(), Some("0"));
        }
        assert_eq!(worked.load(SeqCst), 1);
    }
}

#[tokio::test]
async fn one_that_kept_nothing_makes_room_for_the_next() {
    let rig = Rig::new();
    let ring = rig.usual();
    let Claimed::Mine(first) = claim(&ring, "a").await else { panic!() };
    let waiting = tokio::spawn({
        let ring = ring.clone();
        async move { matches!(claim(&ring, "a").await, Claimed::Mine(_)) }
    });
    tokio::task::yield_now().await;
    first.record(answer("nothing was kept")).await;
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn one_that_goes_away_after_it_kept_something_is_remembered() {
    let rig = Rig::new();
    let ring = rig.usual();
    let Claimed::Mine(mut first) = claim(&ring, "a").await else { panic!() };
    first.kept(&answer("kept"));
    drop(first);
    assert_eq!(look(&ring, "a").await.as_deref(), Some("kept"));
    ring.keys.close().await;
    assert_eq!(look(&rig.usual(), "a").await.as_deref(), Some("kept"));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let rig = Rig::new();
    let ring = rig.usual();
    let Claimed::Mine(_first) = claim(&ring, "a").await else { panic!() };
    let asked = Instant::now();
    assert!(matches!(claim(&ring, "a").await, Claimed::Busy));
    assert_eq!(asked.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn keys_expire_and_the_file_goes_with_the_last() {
    let rig = Rig::new();
    let keys = rig.start();
    let ring = rig.ring(&keys, "10s", 100);
    remember(&ring, "a", "a").await;
    tokio::time::advance(Duration::from_secs(6)).await;
    remember(&ring, "b", "b").await;
    assert_eq!(rig.book.keys.get(), 2);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(look(&ring, "a").await, None);
    assert_eq!(look(&ring, "b").await.as_deref(), Some("b"));
    until(|| rig.book.keys.get() == 1).await;
    until(|| rig.book.keys.get() == 0 && !rig.file().exists()).await;
    remember(&ring, "a", "anew").await;
    assert_eq!(look(&ring, "a").await.as_deref(), Some("anew"));
}

/// A key that has expired and is still on disk can be used again.
#[tokio::test]
async fn an_expired_key_is_as_new() {
    let rig = Rig::new();
    let ring = rig.usual();
    remember(&ring, "a", "old").await;
    let db = Connection::open(rig.file()).unwrap();
    db.execute("UPDATE keys SET expires = 1", []).unwrap();
    assert_eq!(look(&ring, "a").await, None);
    remember(&ring, "a", "new").await;
    assert_eq!(look(&ring, "a").await.as_deref(), Some("new"));
    assert_eq!(rig.book.keys.get(), 1);
}

#[tokio::test]
async fn the_oldest_make_room() {
    let rig = Rig::new();
    let ring = rig.ring(&rig.start(), "1h", 4);
    for key in ["a", "b", "c", "d", "e"] {
        remember(&ring, key, key).await;
    }
    assert_eq!((rig.book.keys.get(), rig.noticed()), (4, vec![("key_limit", 1)]));
    assert_eq!(look(&ring, "a").await, None);
    assert_eq!(look(&ring, "b").await.as_deref(), Some("b"));
    let long = "x".repeat(2500);
    remember(&ring, "long", &long).await;
    assert_eq!((rig.book.keys.get(), rig.noticed()), (2, vec![("key_limit", 4)]));
    assert_eq!(look(&ring, "long").await, Some(long));
    assert_eq!(look(&ring, "e").await.as_deref(), Some("e"));
    // The next run knows what is there.
    let ring = rig.ring(&rig.start(), "1h", 4);
    remember(&ring, "f", "f").await;
    assert_eq!((rig.book.keys.get(), rig.noticed()), (2, vec![("key_limit", 5)]));
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_is_ill_memory_remembers_and_the_disk_learns_later() {
    let rig = Rig::new();
    rig.is_admitted.store(false, SeqCst);
    let ring = rig.usual();
    remember(&ring, "a", "a").await;
    remember(&ring, "b", "b").await;
    assert_eq!(look(&ring, "a").await.as_deref(), Some("a"));
    assert_eq!((rig.book.keys.get(), rig.noticed()), (2, vec![("key_disk_failed", 2)]));
    assert!(!rig.file().exists());
    rig.is_admitted.store(true, SeqCst);
    until(|| rig.file().exists()).await;
    ring.keys.close().await;
    let next = rig.usual();
    assert_eq!(look(&next, "b").await.as_deref(), Some("b"));
    assert_eq!((rig.book.keys.get(), rig.noticed()), (2, vec![("key_disk_failed", 2)]));
}

#[test]
fn what_memory_holds_is_bounded() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _runtime = runtime.enter();
    let ring = rig.usual();
    let entry = |number: u64| {
        let remembered = Remembered { fingerprint: ONE, answer: answer("x") };
        Entry {
            name: Name { listener: "api".into(), key: number.to_string().into() },
            owner: Arc::clone(&ring.owner),
            remembered: Arc::new(remembered),
            expires: UnixNanos(i64::MAX),
        }
    };
    let mut unwritten = unwritten::Unwritten::default();
    let forgotten: Vec<_> =
        (0..unwritten::UNITS_MAX + 3).flat_map(|n| unwritten.push(entry(n))).collect();
    assert_eq!(forgotten.iter().map(|entry| &*entry.name.key).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert_eq!(unwritten.held("api"), unwritten::UNITS_MAX);
    assert!(unwritten.find(&entry(2).name, UnixNanos(0)).is_none());
    assert!(unwritten.find(&entry(3).name, UnixNanos(0)).is_some());
}

#[tokio::test]
async fn a_damaged_file_is_set_aside() {
    for garbage in [&b"garbage"[..], &[0xff; 10_000]] {
        let rig = Rig::new();
        fs::write(rig.file(), garbage).unwrap();
        let ring = rig.usual();
        remember(&ring, "a", "a").await;
        assert_eq!(look(&rig.usual(), "a").await.as_deref(), Some("a"));
        assert_eq!(rig.noticed(), [("keys_damaged", 1)]);
        assert_eq!(fs::read(rig.dir.path().join("keys.db.damaged-1")).unwrap(), garbage);
    }
}

#[tokio::test]
async fn a_file_of_somebody_else_is_left_as_it_is() {
    let rig = Rig::new();
    let db = Connection::open(rig.file()).unwrap();
    db.execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (7)").unwrap();
    drop(db);
    remember(&rig.usual(), "a", "a").await;
    let aside = Connection::open(rig.dir.path().join("keys.db.damaged-1")).unwrap();
    let theirs: i64 = aside.query_row("SELECT a FROM theirs", [], |row| row.get(0)).unwrap();
    assert_eq!(theirs, 7);
}

/// The other keys of the file stay.
#[tokio::test]
async fn a_damaged_record_is_not_believed() {
    let rig = Rig::new();
    let ring = rig.usual();
    remember(&ring, "a", "a").await;
    remember(&ring, "b", "b").await;
    let db = Connection::open(rig.file()).unwrap();
    for (round, change) in [
        "body = 'A'",
        "body = CAST(x'ff' AS TEXT)",
        "body = NULL",
        "status = 201",
        "fingerprint = x'01'",
        "fingerprint = zeroblob(32)",
    ]
    .into_iter()
    .enumerate()
    {
        let update = format!("UPDATE keys SET {change} WHERE key = 'a'");
        db.execute(&update, []).unwrap();
        assert_eq!(look(&ring, "a").await, None, "{change}");
        assert_eq!(rig.noticed(), [("keys_damaged", 1 + round as u64)]);
    }
    assert_eq!(look(&ring, "b").await.as_deref(), Some("b"));
    remember(&ring, "a", "again").await;
    assert_eq!(look(&ring, "a").await.as_deref(), Some("again"));
    assert_eq!(rig.book.keys.get(), 2);
}

/// Time of the test passes only while nobody works, and a thread of the disk is somebody.
async fn until(condition: impl Fn() -> bool) {
    for _ in 0..100 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("in vain");
}

#[tokio::test]
async fn only_so_many_stay_open() {
    let rig = Rig::new();
    let keys = rig.start();
    let ring = rig.ring(&keys, "1h", 100);
    let Claimed::Mine(mut long) = claim(&ring, "a").await else { panic!("not new") };
    let Claimed::Mine(mut other) = claim(&ring, "b").await else { panic!("not new") };
    assert!(!other.stay_open(), "nothing was kept, so there is nothing to be known");
    long.kept(&answer(&"x".repeat(3000)));
    other.kept(&answer("b"));
    keys.open.forget_permits(OPEN_UNITS_MAX - 3);
    assert_eq!((long.stay_open(), other.stay_open()), (true, false), "bytes count");
    long.record(answer("what is so")).await;
    assert!(other.stay_open());
    drop(other);
    assert_eq!(keys.open.available_permits(), 3);
    assert_eq!(look(&ring, "a").await.as_deref(), Some("what is so"));
    assert_eq!(look(&ring, "b").await.as_deref(), Some("b"), "as far as is known");
}
