//! kill -9 at any time.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{k3_pack, output};
use crate::trunk_support::{Model, all_files, open_trunk, stripe_paths};

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_opens_and_the_next_makes_the_same_files() {
    let rounds = if k3_formats::gates::slow() { 60 } else { 4 };
    let model = Model::wide(10);
    let source = model.source();
    let command = |outs: &[std::path::PathBuf]| {
        let mut command: Command = k3_pack();
        command.arg("trunk").arg(model.path()).args(outs);
        command.args(["--threads", "2", "--record-bytes", "300k", "--quiet"]);
        command.stderr(Stdio::null());
        command
    };
    let whole = model.outs("whole", 2);
    let started = Instant::now();
    let (code, _, _) = output(&mut command(&whole));
    assert_eq!(code, 0);
    let run_us = u64::try_from(started.elapsed().as_micros()).unwrap();
    let reference = all_files(&whole);
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut killed, mut resumed) = (0, 0);
    for round in 0..rounds {
        let outs = model.outs(&format!("part{round}-"), 2);
        // Some are killed several times before they are let through.
        for _ in 0..=numbers.below(3) {
            let mut child = command(&outs).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(numbers.below(run_us)));
            child.kill().unwrap();
            if child.wait().unwrap().code().is_some() {
                break;
            }
            killed += 1;
            let is_whole = stripe_paths(&outs).iter().all(|path| path.exists());
            let opened = open_trunk(&source, &outs);
            assert_eq!(opened.is_ok(), is_whole, "round {round}: {opened:?}");
            resumed += u32::from(outs[0].join("trunk.k3journal").exists());
        }
        let (code, _, _) = output(&mut command(&outs));
        // 2: the last one was complete when it was killed.
        assert!(code == 0 || code == 2, "round {round}: {code}");
        assert!(all_files(&outs) == reference, "round {round}");
        outs.iter()
            .for_each(|out| std::fs::remove_dir_all(out).unwrap());
    }
    println!("{killed} runs killed, {resumed} of them with a journal");
    assert!(killed > 0, "every run ended before it could be killed");
}
