//! Generation: from the command line to the last token.
//!
//! | module | holds |
//! |---|---|
//! | [`request`] | everything that can be refused before weights are read |
//! | [`outputs`] | the files a run writes |
//! | [`stream`] | tokens to standard output as they come |
//! | [`steps`] | prefill, steps, teacher forcing |
//! | [`summary`] | what the run tells about itself |

mod outputs;
mod request;
mod steps;
mod stream;
mod summary;

use std::ops::ControlFlow;
use std::time::Instant;

use k3_kernels::KernelSet;
use k3_models::kimi_k3::{KimiK3, KimiK3Layout};
use k3_runtime::report::StopReason;
use k3_runtime::{
    Cancel, Checkpoint, ComputePool, ResidentSource, RunError, Session, SessionSettings,
};

use crate::cli::args::GenerateArgs;
use crate::error::CliError;
use crate::exit::Exit;
use crate::interrupt;
use crate::render;
use crate::render::progress::Progress;
use crate::render::style::Style;
use crate::stdout::Stdout;
use outputs::Outputs;
use request::Request;
use steps::Generation;
use stream::TokenStream;

/// Trunk bytes a block holds at most.
const BLOCK_BYTES: u64 = 4 << 20;

/// Generates.
///
/// # Errors
///
/// Whatever ends the run without a result to keep.
pub(crate) fn run(args: &GenerateArgs) -> Result<Exit, CliError> {
    let started = Instant::now();
    let request = Request::resolve(args)?;
    let cancel = Cancel::default();
    interrupt::install(&cancel)?;
    let pool = ComputePool::new(request.threads)?;
    let layout = request.checkpoint.bind(request.layers)?;
    let outputs = Outputs::create(&args.output)?;
    let settings = SessionSettings {
        context_positions: request.context_positions,
        chunk_positions: request.chunk_positions,
        all_logits: args.output.all_positions || args.generation.tf_check,
    };
    let loaded = load(&request, layout, args, settings, &cancel);
    let (model, mut source) = loaded.map_err(nothing_to_keep)?;
    let mut session = Session::new(&model, &mut source, &pool, settings, cancel.clone());
    if args.output.dump_trace.is_some() {
        session.record_trace();
    }
    let load_seconds = started.elapsed().as_secs_f64();
    let stream = TokenStream::new(request.tokenizer.as_ref(), args.output.json);
    let mut generation = Generation::new(&request, args, session, outputs, stream)?;
    let stop = generation.run().map_err(nothing_to_keep)?;
    let done = generation.finish(stop);
    let report = summary::report(&request, args, &model, &done, load_seconds);
    if args.output.json && !done.output_closed {
        Stdout.write(summary::json(&report).as_bytes())?;
    }
    done.outputs.commit(&done.trace, &report)?;
    if !args.output.quiet {
        render::report::print(&report, Style::detect());
    }
    Ok(match stop {
        StopReason::Interrupted if !done.output_closed => Exit::InterruptedKept,
        _ => Exit::Done,
    })
}

/// Neither a part of a load nor of the first step is worth keeping.
fn nothing_to_keep(error: CliError) -> CliError {
    match error {
        CliError::Run(RunError::Cancelled) => CliError::Interrupted,
        other => other,
    }
}

/// Binds the model and reads its weights, if there is room for them and for a
/// session of `settings`.
fn load(
    request: &Request,
    layout: KimiK3Layout,
    args: &GenerateArgs,
    settings: SessionSettings,
    cancel: &Cancel,
) -> Result<(KimiK3, ResidentSource), CliError> {
    let checkpoint: &Checkpoint = &request.checkpoint;
    let layer_count = layout.layer_count();
    let kernels = KernelSet::for_isa(request.isa).expect("the parser takes available sets only");
    let read = |tensor: &_, target: &mut [u8]| {
        if cancel.is_requested() {
            return Err(RunError::Cancelled);
        }
        checkpoint.read_tensor(tensor, target)
    };
    let model = KimiK3::new(layout, args.execution.attention, kernels, BLOCK_BYTES, read)?;
    let session = settings.planned_bytes(&model, request.threads)?;
    let mut bar = None;
    let progress = |done, total| {
        let quiet = args.output.quiet;
        bar.get_or_insert_with(|| Progress::bytes("weights", total, quiet))
            .set(done);
        if cancel.is_requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let source = ResidentSource::load(&model, checkpoint, layer_count, session, progress)?;
    Ok((model, source))
}
