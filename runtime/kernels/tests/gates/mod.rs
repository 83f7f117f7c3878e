//! What decides whether a test of this crate runs, and the line that says when it does
//! not; `k3_formats::gates`, on which this crate cannot depend, for the tests here.
//!
//! The line goes to the standard error stream itself: what tests print by macro is
//! captured and lost when they pass, and a check that silently did not run reads as one
//! that passed.

#![allow(dead_code, reason = "each test binary uses some of this")]

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// The folder of reference data, `K3_REFERENCE_DATA`; without it, or when it is empty,
/// says that the test is not run.
pub(crate) fn reference_data() -> Option<PathBuf> {
    let folder = folder(std::env::var_os("K3_REFERENCE_DATA"));
    if folder.is_none() {
        not_run("K3_REFERENCE_DATA is not set");
    }
    folder
}

/// Whether `K3_SLOW` is 1: tests that take minutes run, others take larger samples.
pub(crate) fn slow() -> bool {
    is_on(std::env::var_os("K3_SLOW"))
}

/// As [`slow`]; says that the test is not run when it is not.
pub(crate) fn slow_only() -> bool {
    let slow = slow();
    if !slow {
        not_run("K3_SLOW is not 1");
    }
    slow
}

/// Says that a check is not run and why, past the capture of the test runner.
pub(crate) fn not_run(why: &str) {
    // One write, so that lines of parallel tests do not mix. Nothing can be done where
    // the stream is closed.
    let _ = std::io::stderr().write_all(format!("not run: {why}\n").as_bytes());
}

fn folder(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_on(value: Option<OsString>) -> bool {
    value.is_some_and(|value| value == "1")
}

#[test]
fn empty_is_unset_and_only_one_is_on() {
    assert_eq!(folder(Some("".into())), None);
    assert_eq!(folder(Some("a".into())), Some("a".into()));
    assert!(is_on(Some("1".into())));
    for off in ["", "0", "true"] {
        assert!(!is_on(Some(off.into())), "{off:?}");
    }
}
