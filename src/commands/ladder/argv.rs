//! A run as a command line: every option that it was given, under its one name.

use std::ffi::{OsStr, OsString};

use k3_config::MemoryRequest;

use crate::cli::args::{
    AnswerArgs, ExecutionArgs, GenerateArgs, GenerationArgs, ModelArgs, OutputArgs, PlacementArgs,
    PrefixArgs, PromptArgs, SamplingArgs, SpillArgs,
};
use crate::cli::memory::{MemoryArgs, ReadingArgs};
use crate::cli::metrics::MetricsArgs;
use crate::cli::sampling::{ShapingArgs, escaped_stop_string};

/// The arguments of a run that takes the ids of its prompt from standard input
/// and prints its report.
///
/// Nothing is left out by accident: an option that is new in the structures of
/// the command line does not compile until it has its place here.
pub(super) fn argv(args: &GenerateArgs) -> Vec<OsString> {
    let GenerateArgs {
        model,
        prompt: PromptArgs { .. },
        generation,
        // A ladder has one answer and begins anew.
        answer: AnswerArgs { .. },
        memory,
        reading,
        execution,
        // What an earlier rung kept would be no part of the measurement.
        prefix: PrefixArgs { .. },
        output: OutputArgs { .. },
        metrics: MetricsArgs { metrics_listen },
    } = args;
    let mut argv = Argv::default();
    argv.generation(generation);
    argv.memory(memory);
    argv.reading(reading);
    argv.execution(execution);
    argv.shown("--metrics-listen", metrics_listen.as_ref());
    argv.flag("--no-prefix-cache", true);
    argv.flag("--json", true);
    argv.flag("--quiet", true);
    argv.value("--ids-file", Some("-"));
    argv.model(model);
    argv.0
}

#[derive(Debug, Default)]
struct Argv(Vec<OsString>);

impl Argv {
    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.0.push(name.into());
        }
    }

    /// One argument, so that a value may look like an option.
    fn value(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            let mut argument = OsString::from(format!("{name}="));
            argument.push(value);
            self.0.push(argument);
        }
    }

    fn shown(&mut self, name: &str, value: Option<impl ToString>) {
        self.value(name, value.map(|value| value.to_string()));
    }

    fn generation(&mut self, args: &GenerationArgs) {
        let GenerationArgs {
            gen_count,
            sampling,
            shaping,
            ignore_eos,
            tf_check,
            recompute,
            incremental,
        } = args;
        self.shown("--gen", *gen_count);
        let SamplingArgs {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
        } = sampling;
        self.shown("--temperature", *temperature);
        self.shown("--top-k", *top_k);
        self.shown("--top-p", *top_p);
        self.shown("--min-p", *min_p);
        self.shaping(shaping);
        self.shown("--seed", *seed);
        self.flag("--ignore-eos", *ignore_eos);
        self.flag("--tf-check", *tf_check);
        self.flag("--recompute", *recompute);
        self.flag("--incremental", *incremental);
    }

    fn shaping(&mut self, args: &ShapingArgs) {
        let ShapingArgs {
            repetition_penalty,
            frequency_penalty,
            presence_penalty,
            logit_bias,
            stop,
            stop_id,
            logprobs,
        } = args;
        self.shown("--repetition-penalty", *repetition_penalty);
        self.shown("--frequency-penalty", *frequency_penalty);
        self.shown("--presence-penalty", *presence_penalty);
        for bias in logit_bias {
            self.shown("--logit-bias", Some(bias));
        }
        for text in stop {
            self.value("--stop", Some(escaped_stop_string(text)));
        }
        for id in stop_id {
            self.shown("--stop-id", Some(id));
        }
        self.shown("--logprobs", *logprobs);
    }

    fn memory(&mut self, args: &MemoryArgs) {
        let MemoryArgs {
            memory,
            preset,
            trunk_gb,
            cache_gb,
            slots,
            pins,
            block_bytes,
            lookahead,
            settings,
        } = args;
        // Sizes are printed for people and rounded: the exact count is given.
        let memory = memory.map(|request| match request {
            MemoryRequest::Size(bytes) => bytes.0.to_string(),
            MemoryRequest::Preset(preset) => preset.to_string(),
        });
        self.value("--memory", memory);
        self.shown("--preset", *preset);
        self.shown("--trunk-gb", trunk_gb.map(|size| format!("{}B", size.0.0)));
        self.shown("--cache-gb", cache_gb.map(|size| format!("{}B", size.0.0)));
        self.shown("--slots", slots.map(|slots| slots.get()));
        self.shown("--pins", *pins);
        self.shown("--block-bytes", block_bytes.map(|bytes| bytes.0));
        self.shown("--lookahead", *lookahead);
        self.value("--settings", settings.as_ref());
    }

    fn reading(&mut self, args: &ReadingArgs) {
        let ReadingArgs {
            policy,
            engine,
            resident,
            disk_gbps,
            no_disk_probe,
        } = args;
        self.shown("--policy", *policy);
        self.shown("--engine", *engine);
        self.flag("--resident", *resident);
        self.shown("--disk-gbps", *disk_gbps);
        self.flag("--no-disk-probe", *no_disk_probe);
    }

    fn execution(&mut self, args: &ExecutionArgs) {
        let ExecutionArgs {
            threads,
            placement,
            isa,
            attention,
            chunk,
            draft,
            context,
            spill,
        } = args;
        let SpillArgs { spill, spill_gb } = spill;
        let PlacementArgs {
            pin_threads,
            no_pin_threads,
        } = placement;
        self.shown("--threads", *threads);
        self.shown("--pin-threads", *pin_threads);
        self.flag("--no-pin-threads", *no_pin_threads);
        self.shown("--isa", *isa);
        self.shown("--attention", *attention);
        self.shown("--chunk", *chunk);
        self.shown("--draft", *draft);
        self.shown("--context", *context);
        self.value("--spill", spill.as_ref());
        self.shown("--spill-gb", *spill_gb);
    }

    /// Comes last: MODEL may have the name of a command or of an option.
    fn model(&mut self, args: &ModelArgs) {
        let ModelArgs {
            model,
            roots,
            trunk,
            no_checksums,
            config,
            tokenizer,
            layers,
        } = args;
        for root in roots {
            self.value("--root", Some(root));
        }
        for directory in trunk {
            self.value("--trunk", Some(directory));
        }
        self.flag("--no-checksums", *no_checksums);
        self.value("--config", config.as_ref());
        self.value("--tokenizer", tokenizer.as_ref());
        self.shown("--layers", *layers);
        if let Some(model) = model {
            self.0.push("--".into());
            self.0.push(model.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::Cli;

    /// Parsing what is written gives what was parsed, prompt and outputs aside.
    fn check(arguments: &[&str]) {
        let parse = |arguments: &[OsString]| {
            let program = [OsString::from("k3")];
            Cli::try_parse_from(program.iter().chain(arguments)).unwrap()
        };
        let given: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let given = parse(&given).generate;
        let written = parse(&argv(&given));
        assert!(written.command.is_none());
        let written = written.generate;
        assert!(written.output.json && written.output.quiet);
        assert_eq!(written.prompt.ids_file.as_deref(), Some("-".as_ref()));
        let parts = |args: &GenerateArgs| {
            let GenerateArgs {
                model,
                generation,
                memory,
                reading,
                execution,
                ..
            } = args;
            format!("{model:?} {generation:?} {memory:?} {reading:?} {execution:?}")
        };
        assert_eq!(parts(&written), parts(&given));
    }

    #[test]
    fn options_survive_the_way_through_a_command_line() {
        check(&["--prompt", "x"]);
        check(&["--ids", "1", "./plan", "--memory", "1.5Gi"]);
        check(&[
            "model",
            "--root",
            "a b",
            "--root=--c",
            "--trunk",
            "t0",
            "--trunk=t 1",
            "--no-checksums",
            "--config",
            "c",
            "--tokenizer",
            "t",
            "--layers",
            "3",
            "-n",
            "0",
            "--temperature",
            "0.1",
            "--top-k",
            "4",
            "--top-p",
            "0.123456789012345678",
            "--min-p",
            "1e-45",
            "--seed",
            "18446744073709551615",
            "--ignore-eos",
            "--recompute",
        ]);
        check(&[
            "--repetition-penalty",
            "1.1",
            "--frequency-penalty",
            "-0.3",
            "--presence-penalty",
            "1e-45",
            "--logit-bias",
            "4=-1.5,7=-inf",
            "--logit-bias",
            "0=2",
            "--stop",
            r"-\n
",
            "--stop=a,b",
            "--stop-id",
            "3,4",
            "--stop-id=9",
            "--logprobs",
            "20",
        ]);
        check(&[
            "--memory",
            "1234567",
            "--trunk-gb",
            "0.001",
            "--slots",
            "9",
            "--pins",
            "prefix",
            "--block-bytes",
            "65537",
            "--settings",
            "s",
            "--policy",
            "lru",
            "--engine",
            "pread",
        ]);
        check(&["--preset", "floor", "--cache-gb", "2.5", "--incremental"]);
        check(&["--lookahead", "2", "--disk-gbps", "2.5"]);
        check(&["--no-disk-probe"]);
        check(&["--no-pin-threads"]);
        check(&["--resident", "--tf-check"]);
        check(&[
            "--threads",
            "3",
            "--pin-threads",
            "on",
            "--isa",
            "scalar",
            "--attention",
            "expanded",
            "--chunk",
            "5",
            "--context",
            "99",
        ]);
    }
}
