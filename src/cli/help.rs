//! Texts of `--help` and `--version`. Everything fits 80 columns.

use std::sync::LazyLock;

use k3_kernels::KernelSet;
use k3_models::kimi_k3::NUMERICS_VERSION;

use super::values::available_isas;

pub(super) const USAGE: &str = "\
k3 [MODEL] [--prompt <TEXT>] [OPTIONS]
       k3 [MODEL] --ids <LIST> [OPTIONS]
       k3 <COMMAND> [ARGUMENTS]";

pub(super) const LONG_ABOUT: &str = "\
Runs models larger than memory, from the real weights.

Without a command k3 generates: it continues the prompt, streams the text to
standard output and reports on standard error. Token ids and logits depend on
the checkpoint, the prompt and the sampling settings alone, not on memory,
threads, instruction set, chunk size or machine.

Without MODEL it runs a small model of the same architecture that is built in,
and without a prompt too a text of its own, 96 tokens at --temperature 0.8 and
--top-p 0.95 unless options say otherwise.";

pub(super) const SHORT_EXAMPLES: &str = "\
Examples:
  k3
  k3 --prompt 'It was a dark night' --gen 60 --seed 2
  k3 demo ladder

`k3 --help` says more; `k3 <COMMAND> --help` explains a command.";

pub(super) const LONG_EXAMPLES: &str = "\
Examples:
  Continue a text with the built-in model; a directory names another:
    k3 --prompt 'It was' --gen 8
    k3 /disk1/k3 --prompt 'It was' --gen 8

  Sample, reproducibly:
    k3 -p 'It was' --temperature 0.8 --top-p 0.95 --seed 7

  Less repetition, an end before the next question, each token's logprob:
    k3 -p 'It was' --frequency-penalty 0.4 --presence-penalty 0.2 \\
       --stop '\\nQ:' --logprobs 5 --out run.json

  Save a conversation, and go on with it later:
    k3 -p 'It was a dark night' --save-state night.k3state
    k3 --load-state night.k3state -p ' and' --save-state night.k3state

  Three answers at once:
    k3 -p 'It was' --choices 3 --temperature 0.8

  Continue token ids, keep a report and the logits behind the first token:
    k3 --ids 3,4,5 --out run.json --dump-logits a.bin

  Within 64 MB, the same bytes; what the run reserves:
    k3 --ids 3,4,5 --memory 64M
    k3 plan --memory 64M

  Let Prometheus watch a long run:
    k3 -p 'It was' --gen 500 --metrics-listen 127.0.0.1:9464

  Another instruction set, the same bytes:
    k3 --ids 3,4,5 -n 0 --isa scalar --dump-logits b.bin
    k3 compare a.bin b.bin

  A checkpoint on two drives:
    K3_MODEL=/disk1/k3 k3 --root /disk2/k3 --prompt-file question.txt

Exit codes:
  0    done
  1    the run failed, `compare` found a difference, `inspect` a checkpoint that
       is not complete, or `verify` or `repair` bytes that are wrong and stay so
  2    refused: usage, configuration or plan
  3    an output cannot be written
  5    interrupted; what there was is kept: tokens and the report (--out,
       --json), what was fetched, mended or found
  130  interrupted with nothing to keep
Ctrl-C, SIGTERM and a terminal that hangs up (SIGHUP, unless it is ignored)
interrupt a run; a second Ctrl-C or SIGTERM ends at once.
A run that fails or is interrupted before its first token still leaves its
report where --out or --json asked for one; dumps need the whole prompt.

Environment:
  K3_MODEL     checkpoint directory when MODEL is not given
  K3_CACHE_DIR where the built-in model is unpacked [default: k3 below the
               user's cache directory]
  K3_SETTINGS  settings file when --settings is not given
  NO_COLOR     no colours, when set to anything
As the options of the same names, which come before them; no other option has
a variable:
  K3_MEMORY K3_PRESET K3_TRUNK_GB K3_CACHE_GB K3_CONTEXT K3_CHUNK K3_THREADS
  K3_ISA K3_ENGINE K3_BLOCK_BYTES K3_PINS K3_POLICY K3_SLOTS K3_LOOKAHEAD
  K3_ATTENTION K3_TOKENIZER K3_METRICS_LISTEN K3_PIN_THREADS K3_DRAFT
  K3_SEQUENCES K3_CONTEXT_TOTAL K3_PREFIX_CACHE K3_PREFIX_CACHE_GB
  K3_SPILL K3_SPILL_GB
  K3_ROOT K3_TRUNK (directories, with colons between)";

pub(super) const PLAN_ABOUT: &str = "\
Show what a run would reserve and read, before anything is reserved.

Every reservation has a line; their sum never exceeds the budget. A budget that
is too small is refused with what is missing and what would help. The model's
weights need not be here: with --config its configuration is enough.";

pub(super) const PLAN_EXAMPLES: &str = "\
Examples:
  k3 plan --memory 64M
  k3 plan --config k3/config.json --preset floor
  k3 plan /disk1/k3 --memory 32G --disk-gbps 6.5 --json";

pub(super) const DEMO_LADDER_ABOUT: &str = "\
Run the built-in model in more and more memory and compare.

The same text with a tenth, two fifths and all of the trunk and of the experts
in memory, first from the checkpoint as released, then from a packed trunk. A
row for each run says what it reserved and read; below stands whether all made
the same tokens. Exits with 1 if they did not.";

pub(super) const DEMO_LADDER_EXAMPLES: &str = "\
Examples:
  k3 demo ladder
  k3 demo ladder --prompt 'The whale' --gen 40 --json";

pub(super) const DEMO_PATH_ABOUT: &str = "\
Unpack the built-in model and print its directory.

It lies in K3_CACHE_DIR, else in k3 below the user's cache directory, under a
name that follows from what it holds. Whatever takes a MODEL takes this one.";

pub(super) const DEMO_PATH_EXAMPLES: &str = "\
Examples:
  k3 demo path
  k3-pack trunk \"$(k3 demo path)\" packed
  k3 --trunk packed";

pub(super) const DOCTOR_ABOUT: &str = "\
Examine this machine, before a run.

Processors, memory and its limits, huge pages, lockable memory, io_uring and the
disk, measured through the engine that a run reads with and past the page cache.
Then which presets fit, what a token takes at the measured rates, and everything
that is less than it could be, each with the way out. Takes about ten seconds
and writes nothing unless --scratch says so. Exits with 1 when something makes a
run impossible.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  k3 doctor /disk1/k3
  k3 doctor /disk1/k3 --root /disk2/k3 --json
  k3 doctor /disk1 --config k3/config.json --scratch 2G
  k3 doctor";

pub(super) const INSPECT_ABOUT: &str = "\
Tell what a checkpoint holds and lacks.

Bytes by kind, the layers, the experts, the identity. Only headers are read.
What is missing or broken is listed below the census. Exits with 0 when the
checkpoint is complete, with 1 when it is not.

Of a packed trunk, in MODEL's place or named with --trunk: its blocks, bytes,
codecs and files, and whether it is of this checkpoint.";

pub(super) const INSPECT_EXAMPLES: &str = "\
Examples:
  k3 inspect
  k3 inspect /disk1/k3 --root /disk2/k3 --json
  k3 inspect /data/Kimi-K3 --trunk /fast/k3-trunk
  k3 inspect /fast/k3-trunk";

pub(super) const REPLAY_ABOUT: &str = "\
Replay a trace of experts against a cache.

Tells which share of the experts a policy would have found in memory, for
several sizes of the cache, beside the bound that no policy can pass. Nothing
is read but the trace.";

pub(super) const REPLAY_EXAMPLES: &str = "\
Examples:
  k3 --ids 3,4,5 --gen 20 --dump-trace demo.trace
  k3 replay demo.trace --topk 3 --slots 8,16,32 --expert-bytes 3264
  k3 replay k3.trace --policy lru --model pick --last-pass";

pub(super) const LADDER_ABOUT: &str = "\
Run at several memory budgets, each held to it by the kernel.

Every run is a process of its own in a fresh memory control group that has the
budget as its limit and no swap. All rungs take turns, as often as --repeats
says, so that noise falls on all alike. Shown are plan and peak, seconds per
token with their spread, and what was read; the ids of all runs are compared. A
rung that is refused or killed is shown as such, and the others go on.";

pub(super) const LADDER_EXAMPLES: &str = "\
Examples:
  k3 ladder --rungs 64M,128M --ids 3,4,5 --gen 8
  k3 ladder /disk1/k3 --rungs 1.5Gi,2Gi,4Gi,8Gi -p 'Once upon' --out ladder.tsv
  k3 ladder /disk1/k3 --rungs 8G,32G --repeats 5 --ids 1,2,3 --engine pread

Limits come from the version of control groups that is there, below the group
that k3 runs in; where none can be made there, from a systemd scope. The output
says which. Exit code 1: ids differ, a peak is above its plan, or a run failed
or was killed. Refused rungs alone are no failure.";
pub(super) const BENCH_ABOUT: &str = "\
Measure the disk, the kernels, or how well reading hides behind arithmetic.

Each measure stands beside what it is compared with, over and over, and what
counts are the ratios: other programs then slow both sides alike.";

pub(super) const BENCH_EXAMPLES: &str = "\
Examples:
  k3 bench disk /disk1/k3
  k3 bench overlap /disk1/k3 --memory 8G
  k3 bench kernels";

pub(super) const BENCH_DISK_ABOUT: &str = "\
Compare k3's reader with the best that the disk gives.

Reads all over the files, past the page cache where the file system allows it,
in requests of several sizes and numbers, with both kinds of engine. Then the
best of these and the reader as it is set for a run are measured again in turn.
Nothing is written.";

pub(super) const BENCH_DISK_EXAMPLES: &str = "\
Examples:
  k3 bench disk /disk1/k3
  k3 bench disk /disk1/some-large-file --engine pread
  k3 bench disk /disk1/k3 --pairs 21 --check --out disk.json";

pub(super) const BENCH_DECODE_ABOUT: &str = "\
Measure the arithmetic of one token, every share of it by name.

Sweeps of one position follow one another over weights that lie in memory;
nothing is read meanwhile. Between one step and the next the processor time of
all threads is taken, so that what else the machine does does not count. A
checkpoint with few layers and experts tells the time of the whole model: each
step is scaled by how often, or over how much, that model has it.";

pub(super) const BENCH_DECODE_EXAMPLES: &str = "\
Examples:
  k3 bench decode /disk1/k3
  k3 bench decode /disk1/k3 --layers 8 --isa avx2 --threads 1
  k3 bench decode /disk1/k3 --context 4096 --check --out decode.json";

pub(super) const BENCH_EXPERTS_ABOUT: &str = "\
Measure what coding the experts without loss would save, and what it would cost.

k3 reads experts as they are stored. This looks at a sample of them: the least
bits that any coder of single values needs, what two coders reach, and how fast
their decoders are beside the product that would take what they give. All
savings are shares of all expert bytes.";

pub(super) const BENCH_EXPERTS_EXAMPLES: &str = "\
Examples:
  k3 bench experts /disk1/k3
  k3 bench experts /disk1/k3 --sample 64 --isa avx2 --out experts.json";

pub(super) const BENCH_KERNELS_ABOUT: &str = "\
Compare kernels with reading the memory that their weights lie in.

Every kernel of every instruction set here, at the sizes of the released model,
over seeded weights; and what handing out an empty job costs. Rates are work
per second of CPU time. A sample of all outputs is compared, bit for bit, with
the scalar definition: one difference is a failure, with or without --check.

Takes about two minutes and 1.3 GB of memory; reads and writes no file but what
--out and --tsv name.";

pub(super) const BENCH_KERNELS_EXAMPLES: &str = "\
Examples:
  k3 bench kernels
  k3 bench kernels --kernel bf16,mxfp4 --isa avx2 --threads 1
  k3 bench kernels --rounds 15 --check --tsv kernels.tsv";

pub(super) const BENCH_OVERLAP_ABOUT: &str = "\
Compare streamed sweeps with their reads alone and their arithmetic alone.

A sweep through the model's layers reads and computes at the same time. At best
it takes as long as the longer of the two sides. Here each side is measured by
itself, right after the sweep: the same requests without arithmetic, and the
same arithmetic, with the same experts, over weights in memory.

Without --memory the budget is that of the preset `floor`, 1.5 GiB, so that not
everything stays in memory. What the two sides take comes on top of it.";

pub(super) const BENCH_OVERLAP_EXAMPLES: &str = "\
Examples:
  k3 bench overlap /disk1/k3
  k3 bench overlap /disk1/k3 --memory 32G --positions 1,8,64
  k3 bench overlap /disk1/k3 --rounds 15 --check --out overlap.json";

pub(super) const BENCH_PREFILL_ABOUT: &str = "\
Measure what a position of a prompt costs, by the positions of a chunk.

A chunk reads every block of the trunk once, and once every expert that any of
its positions picked: the more positions share a chunk, the less each has to
read. The memory for a chunk's positions comes out of the same budget (see
`k3 plan --chunk`).

Without --memory the budget is that of the preset `floor`, 1.5 GiB.";

pub(super) const BENCH_PREFILL_EXAMPLES: &str = "\
Examples:
  k3 bench prefill /disk1/k3
  k3 bench prefill /disk1/k3 --memory 8G --chunks 1,8,32,128 --rounds 5";

pub(super) const TOKENIZE_EXAMPLES: &str = "\
Examples:
  k3 tokenize --text 'hello and'
  k3 tokenize --tokenizer vocabulary/ --file book.txt --json > ids.json";

pub(super) const DETOKENIZE_EXAMPLES: &str = "\
The output is exactly the tokens' bytes; they need not be whole characters.

Examples:
  k3 detokenize --ids 257,331
  k3 tokenize -t hi | k3 detokenize --ids-file -";

pub(super) const COMPARE_ABOUT: &str = "\
Compare two logit dumps, as --dump-logits writes them.

Tells how many values differ and by how much, the likeliest token of each and
the ten likeliest side by side. A NaN or an infinity against another value makes
the largest difference not finite, \"inf\" in the JSON. Exits with 0 when the
dumps are identical byte for byte, with 1 when they differ.";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  k3 compare scalar.bin avx512.bin
  k3 compare a.bin b.bin --vocab 163840 --json";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  k3 completions bash > ~/.local/share/bash-completion/completions/k3
  k3 completions zsh > ~/.zfunc/_k3
  k3 completions fish > ~/.config/fish/completions/k3.fish
  k3 completions zsh --program k3-pack > ~/.zfunc/_k3-pack";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  k3 man ~/.local/share/man/man1
  k3 man . && man -l k3-bench-disk.1";

/// What `--version` adds to the name: all that results depend on, and what
/// they do not.
pub(super) fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(version_text);
    &TEXT
}

fn version_text() -> String {
    let isas: Vec<_> = available_isas().map(|isa| isa.name()).collect();
    format!(
        "{}\nnumerics: version {NUMERICS_VERSION} (attention: latent, expanded)\n\
         instruction sets here: {} (used: {})",
        env!("CARGO_PKG_VERSION"),
        isas.join(", "),
        KernelSet::detect().isa
    )
}
