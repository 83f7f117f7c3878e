//! One run: a process of its own, watched until it has ended.

use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k3_config::{Bytes, GroupPeaks};
use k3_runtime::Cancel;
use k3_runtime::ladder::{LadderRun, RunFigures, RunOutcome};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::argv::argv;
use super::limits::{Hold, Limits, Placed};
use super::message;
use crate::cli::args::GenerateArgs;
use crate::error::{CliError, chain};
use crate::exit::Exit;
use crate::interrupt;

/// How often a run and its group are looked at: often enough that a short one is
/// seen, whose group is gone with it.
const LOOK: Duration = Duration::from_millis(10);
/// How long a run may take to end cleanly after it was asked to.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes that are taken from a run: its report, and what it complains of.
const REPORT_BYTES_MAX: u64 = 1 << 30;
const COMPLAINT_BYTES_MAX: u64 = 64 << 10;
const SIGKILL: i32 = Signal::SIGKILL as i32;

/// Starts runs.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    /// The program that runs, this one.
    pub program: PathBuf,
    /// What holds runs to their budget.
    pub limits: &'a Limits,
    /// Ids of the prompt, as a run reads them.
    pub prompt: String,
    /// Whether to stop.
    pub cancel: &'a Cancel,
    /// Runs started so far.
    pub started: u32,
}

/// What a run left behind.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    peaks: GroupPeaks,
    swap_is_off: Option<bool>,
    fault: Option<String>,
}

/// A run that was made, and what is worth knowing about how it was held.
#[derive(Debug)]
pub(super) struct Made {
    /// The run.
    pub run: LadderRun,
    /// Whether nothing could go to swap; `None` if that is not known.
    pub swap_is_off: Option<bool>,
}

impl Runner<'_> {
    /// Makes one run of `args` at `budget`; `None` if it was interrupted.
    ///
    /// A run that cannot be held or started has failed like any other: those
    /// before it stay, and the next one may succeed.
    pub(super) fn run(&mut self, args: &GenerateArgs, budget: Bytes, repeat: u32) -> Option<Made> {
        let started = Instant::now();
        self.started += 1;
        self.made(args, budget, repeat).unwrap_or_else(|error| {
            let run = LadderRun {
                repeat,
                seconds: started.elapsed().as_secs_f64(),
                group: GroupPeaks::default(),
                outcome: RunOutcome::Failed(chain(&error)),
            };
            let swap_is_off = None;
            (!self.cancel.is_requested()).then_some(Made { run, swap_is_off })
        })
    }

    fn made(
        &self,
        args: &GenerateArgs,
        budget: Bytes,
        repeat: u32,
    ) -> Result<Option<Made>, CliError> {
        let placed = self
            .limits
            .place(self.started, budget, &self.program, argv(args))?;
        let started = Instant::now();
        let ended = watch(placed, &self.prompt, self.cancel)?;
        let seconds = started.elapsed().as_secs_f64();
        // What was interrupted has not done what the others did.
        if self.cancel.is_requested() && !ended.status.success() {
            return Ok(None);
        }
        Ok(Some(Made {
            swap_is_off: ended.swap_is_off,
            run: LadderRun {
                repeat,
                seconds,
                group: ended.peaks,
                outcome: outcome(&ended),
            },
        }))
    }
}

/// Starts a run, feeds it its prompt and looks after it until it has ended.
fn watch(placed: Placed, prompt: &str, cancel: &Cancel) -> Result<Ended, CliError> {
    let Placed {
        mut command,
        mut hold,
        limit,
    } = placed;
    let program = PathBuf::from(command.get_program());
    // Ctrl-C on a terminal reaches its whole group of processes. The run has
    // its own: it is asked to stop once, from here.
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|source| CliError::NotStarted { program, source })?;
    let _guard = interrupt::at_once(kill_and_remove(child.id(), hold.path()));
    let mut stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    thread::scope(|scope| {
        // A run that ends before it has read everything says why itself.
        scope.spawn(move || drop(stdin.write_all(prompt.as_bytes())));
        let stdout = scope.spawn(|| read_all(stdout, REPORT_BYTES_MAX));
        let stderr = scope.spawn(|| read_all(stderr, COMPLAINT_BYTES_MAX));
        let mut ended = look_after(&mut child, &mut hold, limit, cancel);
        if let Ok(ended) = &mut ended {
            ended.stdout = stdout.join().expect("reading does not panic");
            ended.stderr = stderr.join().expect("reading does not panic");
        }
        ended
    })
}

fn look_after(
    child: &mut Child,
    hold: &mut Hold,
    limit: Bytes,
    cancel: &Cancel,
) -> Result<Ended, CliError> {
    let mut peaks = GroupPeaks::default();
    let mut fault = None;
    let mut asked_at: Option<Instant> = None;
    let status = loop {
        hold.read(child.id(), &mut peaks);
        fault = fault.or_else(|| hold.fault(limit));
        if let Some(status) = child.try_wait().map_err(CliError::Watch)? {
            break status;
        }
        let is_late = asked_at.is_some_and(|asked| asked.elapsed() > PATIENCE);
        if is_late || fault.is_some() {
            end(child.id(), Signal::SIGKILL);
        } else if cancel.is_requested() && asked_at.is_none() {
            end(child.id(), Signal::SIGINT);
            asked_at = Some(Instant::now());
        }
        thread::sleep(LOOK);
    };
    // The kernel's own counters are complete now.
    hold.read(child.id(), &mut peaks);
    Ok(Ended {
        status,
        stdout: Vec::new(),
        stderr: Vec::new(),
        peaks,
        swap_is_off: hold.swap_is_off(),
        fault,
    })
}

/// Signals a child that has not been waited for, so that its number is its own.
fn end(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).expect("process ids are small");
    // It may have ended by itself meanwhile.
    let _ = kill(Pid::from_raw(pid), signal);
}

/// What is left to do when the program ends without returning here.
fn kill_and_remove(pid: u32, group: Option<PathBuf>) -> impl FnOnce() + Send + 'static {
    move || {
        end(pid, Signal::SIGKILL);
        if let Some(group) = group {
            // What stays is recognised and removed by the next ladder.
            let _ = k3_config::remove_group(Path::new(&group));
        }
    }
}

/// Everything up to `bytes_max`; what follows is read and dropped, so that the
/// writer does not wait.
fn read_all(mut pipe: impl Read, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A pipe that fails has nothing more to say.
    let _ = pipe.by_ref().take(bytes_max).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    bytes
}

fn outcome(ended: &Ended) -> RunOutcome {
    if let Some(fault) = &ended.fault {
        return RunOutcome::Failed(fault.clone());
    }
    if ended.status.success() {
        return match RunFigures::parse(&ended.stdout) {
            Ok(figures) => RunOutcome::Finished(Box::new(figures)),
            Err(error) => RunOutcome::Failed(error.to_string()),
        };
    }
    let was_full = ended.peaks.oom_kills.is_some_and(|kills| kills > 0);
    if ended.status.signal() == Some(SIGKILL) && was_full {
        return RunOutcome::OutOfMemory;
    }
    let reason = message::reason(&ended.stderr, ended.status);
    if ended.status.code() == Some(Exit::Refused.code().into()) {
        RunOutcome::Refused(reason)
    } else {
        RunOutcome::Failed(reason)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser as _;
    use k3_config::GroupParent;
    use k3_testkit::gates;

    use super::*;

    fn nothing_holds(script: &str) -> Placed {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Placed {
            command,
            hold: Hold::Nothing,
            limit: Bytes(1 << 30),
        }
    }

    fn ended(script: &str) -> Ended {
        watch(nothing_holds(script), "1,2,3", &Cancel::default()).unwrap()
    }

    #[test]
    fn the_prompt_goes_in_and_everything_comes_out() {
        let run = ended("cat; echo complaint >&2; exit 2");
        assert_eq!(run.stdout, b"1,2,3");
        assert_eq!(run.stderr, b"complaint\n");
        assert!(matches!(outcome(&run), RunOutcome::Refused(why) if why == "complaint"));
        let run = ended("exit 1");
        assert!(matches!(outcome(&run), RunOutcome::Failed(_)));
        // No report.
        let run = ended("echo {}");
        assert!(matches!(outcome(&run), RunOutcome::Failed(why) if why.contains("report")));
        // A kill that was nobody's but ours is not put down to memory.
        let run = ended("kill -9 $$");
        assert!(matches!(outcome(&run), RunOutcome::Failed(why) if why.contains("signal 9")));
    }

    /// Each run is tried: one that cannot start takes nothing from the others.
    #[test]
    fn a_run_that_cannot_start_is_a_failed_one() {
        let args = ["k3", "model", "--ids", "1"];
        let args = crate::cli::args::Cli::try_parse_from(args).unwrap();
        let runner = |program: &str, cancel: &Cancel| {
            let mut runner = Runner {
                program: program.into(),
                limits: &Limits::None,
                prompt: String::new(),
                cancel,
                started: 0,
            };
            let made = runner.run(&args.generate, Bytes(1 << 30), 2);
            assert_eq!(runner.started, 1);
            made
        };
        let cancel = Cancel::default();
        let made = runner("/no/such/program", &cancel).unwrap();
        assert_eq!(made.run.repeat, 2);
        let RunOutcome::Failed(why) = made.run.outcome else {
            panic!("{:?}", made.run.outcome);
        };
        assert!(
            why.contains("/no/such/program") && why.contains("os error 2"),
            "{why}"
        );
        cancel.request();
        assert!(runner("/no/such/program", &cancel).is_none());
    }

    #[test]
    fn more_than_a_pipe_holds_does_not_stop_a_run() {
        let run = ended("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2");
        assert_eq!(run.stdout.len(), 1_000_000);
        assert_eq!(run.stderr.len() as u64, COMPLAINT_BYTES_MAX);
        assert!(run.status.success());
    }

    #[test]
    fn a_run_is_asked_once_to_stop() {
        let cancel = Cancel::default();
        // Says when it listens; asked twice it would end with 1. It waits in the
        // shell itself: one that starts processes all the time can lose a signal.
        let script = "trap 'trap \"exit 1\" INT; kill $!; sleep 0.3; echo asked; exit 5' INT; \
                      sleep 60 > /dev/null 2>&1 & : > \"$0\"; wait";
        let dir = tempfile::tempdir().unwrap();
        let listens = dir.path().join("listens");
        let mut placed = nothing_holds(script);
        placed.command.arg(&listens);
        let run = thread::scope(|scope| {
            scope.spawn(|| {
                while !listens.exists() {
                    thread::sleep(Duration::from_millis(5));
                }
                cancel.request();
            });
            watch(placed, "", &cancel).unwrap()
        });
        // One that is killed for taking too long has no code.
        assert_eq!(
            (run.status.code(), &*run.stdout),
            (Some(5), &b"asked\n"[..])
        );
    }

    /// Whether the kernel's kill is recognised as one.
    #[test]
    fn the_kernel_ends_what_outgrows_its_group() {
        let group = GroupParent::own(Path::new("/"))
            .and_then(|parent| parent.create(std::process::id(), 1, Bytes(16 << 20)));
        let group = match group {
            Ok(group) => group,
            Err(error) => return gates::not_run(&error.to_string()),
        };
        assert_eq!(group.reader().limit(), Some(Bytes(16 << 20)));
        let mut command = Command::new("sh");
        let script = "echo 0 > \"$1/cgroup.procs\" && exec tail /dev/zero";
        command.args(["-c", script, "sh"]).arg(group.path());
        let path = group.path().to_owned();
        let placed = Placed {
            command,
            hold: Hold::Group(group),
            limit: Bytes(16 << 20),
        };
        let run = watch(placed, "", &Cancel::default()).unwrap();
        assert!(
            matches!(outcome(&run), RunOutcome::OutOfMemory),
            "{}",
            run.status
        );
        assert_eq!(run.peaks.oom_kills, Some(1));
        let peak = run.peaks.peak.unwrap();
        assert!(peak <= Bytes(16 << 20) && peak > Bytes(8 << 20), "{peak}");
        assert!(!path.exists(), "the group is gone");
    }
}
