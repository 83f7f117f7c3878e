//! What others hold of the scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use k3_runtime::scheduler::{RefusalReason, Refused, Update};
use k3_runtime::{Cancel, GenerateRequest, SchedulerSettings};

use super::serve::{Mailbox, Submission};

/// Submits requests. Clones share one queue.
#[derive(Debug, Clone)]
pub struct SchedulerHandle {
    submissions: Sender<Submission>,
    settings: SchedulerSettings,
    vocab_size: usize,
    waiting: Arc<AtomicUsize>,
}

/// A place in the queue, until the request has its states or its end.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// One of `most` places, if one is free.
    fn take(waiting: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let mut taken = waiting.load(Ordering::Relaxed);
        while taken < most {
            let next = waiting.compare_exchange_weak(
                taken,
                taken + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match next {
                Ok(_) => return Some(Self(Arc::clone(waiting))),
                Err(now) => taken = now,
            }
        }
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SchedulerHandle {
    /// A handle, and the mailbox that is to be [served](super::serve) with a
    /// scheduler of `settings` over `vocab_size` ids.
    #[must_use]
    pub fn new(settings: SchedulerSettings, vocab_size: usize) -> (Self, Mailbox) {
        let (submissions, incoming) = bounded(settings.queue_max.max(1));
        let handle = Self {
            submissions,
            settings,
            vocab_size,
            waiting: Arc::default(),
        };
        (handle, Mailbox::new(incoming))
    }

    /// Queues `request`.
    ///
    /// # Errors
    ///
    /// A request that could never run, a full queue, or a scheduler that has
    /// stopped; the request is handed back.
    pub fn submit(&self, request: GenerateRequest) -> Result<Answer, Box<Refused>> {
        let refuse = |why, request| Err(Box::new(Refused { why, request }));
        if let Some(why) = request.refusal(&self.settings, self.vocab_size) {
            return refuse(why, request);
        }
        let queue_max = self.settings.queue_max;
        let full = RefusalReason::QueueFull { queue_max };
        let Some(place) = Place::take(&self.waiting, queue_max) else {
            return refuse(full, request);
        };
        let (news, events) = unbounded();
        let cancel = request.cancel.clone();
        let submission = Submission {
            request,
            news,
            place,
        };
        match self.submissions.try_send(submission) {
            Ok(()) => Ok(Answer { events, cancel }),
            Err(TrySendError::Full(submission)) => refuse(full, submission.request),
            Err(TrySendError::Disconnected(submission)) => {
                refuse(RefusalReason::Stopped, submission.request)
            }
        }
    }

    /// Requests that have neither states nor an end yet.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// What comes of a request. Dropped before its end, it calls the request off.
#[derive(Debug)]
pub struct Answer {
    events: Receiver<(u32, Update)>,
    cancel: Cancel,
}

impl Answer {
    /// The next news, with the choice it is about; `None` after the last one of
    /// every choice.
    #[must_use]
    pub fn next(&self) -> Option<(u32, Update)> {
        self.events.recv().ok()
    }

    /// Calls the request off: it leaves at the end of the sweep at hand.
    pub fn cancel(&self) {
        self.cancel.request();
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.cancel.request();
    }
}
