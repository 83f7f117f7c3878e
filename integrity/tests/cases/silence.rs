//! Servers that say nothing, and people who do not want to wait for them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use k3_integrity::fetch::fetch;
use k3_integrity::http::HttpSettings;
use k3_integrity::repair::repair;
use k3_integrity::{IntegrityError, Watch};
use k3_testkit::hub::{Hub, HubFault};

use crate::support::{Notes, checkpoint, contents, flip, hub, repair_settings, settings, shard};

/// Long enough that no test waits for it.
const LONG: HttpSettings = HttpSettings {
    connect: Duration::from_secs(600),
    response: Duration::from_secs(600),
    stall: Duration::from_secs(600),
    proxies: false,
};
/// When the person has had enough.
const ENOUGH: Duration = Duration::from_millis(300);
/// By when everything has ended: a fraction of [`LONG`], many times what it takes.
const SOON: Duration = Duration::from_secs(30);

/// The address of a server that answers each request with `begins` and is silent
/// from then on.
fn silent(begins: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(begins.as_bytes());
                thread::sleep(Duration::from_secs(600));
            });
        }
    });
    address
}

/// Runs `work`, which is stopped after a while, and must end soon after.
fn stopped<T>(work: impl FnOnce(&Arc<Notes>) -> Result<T, IntegrityError>) -> Arc<Notes> {
    let notes = Arc::new(Notes::default());
    let person = Arc::clone(&notes);
    let started = Instant::now();
    thread::spawn(move || {
        thread::sleep(ENOUGH);
        person.stopped.store(true, Ordering::SeqCst);
    });
    let error = work(&notes).err().expect("nothing can be had there");
    assert!(matches!(error, IntegrityError::Interrupted), "{error}");
    let took = started.elapsed();
    assert!((ENOUGH..SOON).contains(&took), "{took:?}");
    // Nobody is told of tries that will not be.
    assert!(!notes.text().contains("trying again"), "{}", notes.text());
    notes
}

/// Before the head, within it, and within a body that may be of any length.
const SILENCES: [&str; 3] = [
    "",
    "HTTP/1.1 200 OK\r\nContent-Le",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"sha\r\n",
];

#[test]
fn who_asks_what_there_is_can_stop() {
    for begins in SILENCES {
        let dir = tempfile::tempdir().unwrap();
        let some: Hub = hub();
        let mut settings = settings(&some, dir.path());
        (settings.endpoint, settings.http) = (silent(begins), LONG);
        stopped(|notes| {
            let watch: Arc<dyn Watch> = Arc::clone(notes) as _;
            fetch(&settings, &watch)
        });
        assert!(only_ours(dir.path()), "{begins}");
    }
}

#[test]
fn who_fetches_can_stop() {
    for begins in SILENCES {
        let dir = tempfile::tempdir().unwrap();
        let some: Hub = hub();
        let mut settings = settings(&some, dir.path());
        settings.http = LONG;
        // Large files come from there.
        some.redirect_to_address(&silent(begins));
        stopped(|notes| {
            let watch: Arc<dyn Watch> = Arc::clone(notes) as _;
            fetch(&settings, &watch)
        });
    }
}

#[test]
fn who_repairs_can_stop_and_nothing_half_fetched_stays() {
    let some = hub();
    let name = "model-00002-of-00004.safetensors";
    some.misbehave(name, 0, 1, HubFault::Stall(100, 600_000));
    let places = [
        silent(SILENCES[0]),
        silent(SILENCES[1]),
        some.files_address(),
    ];
    for place in places {
        let dir = checkpoint();
        flip(&shard(dir.path(), 2), 40_000);
        let before = contents(dir.path());
        let mut settings = repair_settings(&some, dir.path());
        (settings.from, settings.http) = (Some(place.clone()), LONG);
        stopped(|notes| repair(&settings, &**notes));
        assert!(contents(dir.path()) == before, "{place}");
        assert!(only_ours(dir.path()), "{place}");
    }
}

/// Whether no file is there that a repair would have to clear away.
fn only_ours(directory: &Path) -> bool {
    let entries = directory.read_dir().unwrap();
    let mut names = entries.map(|entry| entry.unwrap().file_name());
    !names.any(|name| name.to_string_lossy().ends_with(".repair"))
}
