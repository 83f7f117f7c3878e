//! The loop on the thread that computes.

use std::collections::HashMap;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use k3_models::ModelFamily;
use k3_runtime::scheduler::{Ended, Event, FinishReason, RequestId, Update};
use k3_runtime::{GenerateRequest, RunError, Scheduler, WeightSource};

use super::handle::Place;

/// How often an idle scheduler looks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// A request on its way.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) request: GenerateRequest,
    pub(super) news: Sender<(u32, Update)>,
    pub(super) place: Place,
}

/// Where requests arrive.
#[derive(Debug)]
pub struct Mailbox {
    incoming: Receiver<Submission>,
}

impl Mailbox {
    pub(super) fn new(incoming: Receiver<Submission>) -> Self {
        Self { incoming }
    }
}

/// A request that the scheduler has.
struct Client {
    news: Sender<(u32, Update)>,
    /// Given back on admission.
    place: Option<Place>,
    /// Choices that have not had their last event.
    open: usize,
}

/// Runs the requests of `mailbox` on `scheduler` until every handle is gone and
/// every request has had its end, or the scheduler is asked to stop.
///
/// # Errors
///
/// [`RunError::Cancelled`] if it was asked to stop; every request has had its
/// last event then.
///
/// # Panics
///
/// If the handles were made for another scheduler's settings.
pub fn serve<M: ModelFamily, S: WeightSource>(
    scheduler: &mut Scheduler<'_, M, S>,
    mailbox: Mailbox,
) -> Result<(), RunError> {
    let mut clients = HashMap::new();
    let mut events = Vec::new();
    let result = loop {
        if !receive(scheduler, &mailbox, &mut clients) {
            break Ok(());
        }
        let step = scheduler.step(&mut events);
        for event in events.drain(..) {
            tell(&mut clients, event);
        }
        if let Err(error) = step {
            break Err(error);
        }
    };
    // Those that arrived after the last step, or while it stopped.
    for submission in mailbox.incoming.try_iter() {
        let ended = Ended::early(FinishReason::Cancelled);
        for choice in &submission.request.choices {
            let _ = submission
                .news
                .send((choice.index, Update::Ended(ended.clone())));
        }
    }
    result
}

/// Takes what has arrived, or waits for it if there is nothing else to do.
/// `false` once nothing can arrive any more and nothing is left.
fn receive<M: ModelFamily, S: WeightSource>(
    scheduler: &mut Scheduler<'_, M, S>,
    mailbox: &Mailbox,
    clients: &mut HashMap<RequestId, Client>,
) -> bool {
    if scheduler.is_idle() {
        match mailbox.incoming.recv_timeout(LOOK) {
            Ok(submission) => accept(scheduler, submission, clients),
            // The next step looks whether it should stop.
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
    for submission in mailbox.incoming.try_iter() {
        accept(scheduler, submission, clients);
    }
    true
}

fn accept<M: ModelFamily, S: WeightSource>(
    scheduler: &mut Scheduler<'_, M, S>,
    submission: Submission,
    clients: &mut HashMap<RequestId, Client>,
) {
    let open = submission.request.choices.len();
    // The places of the queue are as many as the scheduler's own.
    let id = scheduler.submit(submission.request);
    let id = id.expect("the handle has checked it");
    let client = Client {
        news: submission.news,
        place: Some(submission.place),
        open,
    };
    clients.insert(id, client);
}

fn tell(clients: &mut HashMap<RequestId, Client>, event: Event) {
    let client = clients.get_mut(&event.request);
    let client = client.expect("a request has a client until its last event");
    client.place = None;
    let is_last = matches!(event.update, Update::Ended(_));
    // Whoever has stopped listening has called the request off.
    let _ = client.news.send((event.choice, event.update));
    client.open -= usize::from(is_last);
    if client.open == 0 {
        clients.remove(&event.request);
    }
}
