//! The thread that files reads.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, select};
use k3_io::ReadDone;
use parking_lot::Mutex;

use super::Delivery;
use super::books::{Books, Landed};
use super::handle::ExpertLease;
use crate::experts::SlotId;

/// What compute, its leases and the thread share.
pub(super) struct Shared {
    books: Mutex<Books>,
}

impl Shared {
    pub(super) fn new(books: Books) -> Arc<Self> {
        Arc::new(Self {
            books: Mutex::new(books),
        })
    }

    /// Changes the books and asks for what is to be read then, in one step:
    /// what is read must not depend on which thread runs first.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.books.lock();
        let changed = change(&mut books);
        books.read_more();
        changed
    }

    /// The lease of `slot` has ended.
    pub(super) fn release(&self, slot: SlotId) {
        self.change(|books| books.released(slot));
    }
}

/// Channels of the thread.
pub(super) struct Channels {
    /// Closed when the thread is to end.
    pub(super) running: Receiver<()>,
    /// Room for every slot and one error.
    pub(super) deliveries: Sender<Delivery>,
    /// Answers of the engine, with room for every slot.
    pub(super) done: Receiver<ReadDone>,
}

/// Files answers of the engine until it is told to stop.
pub(super) fn run(shared: &Arc<Shared>, channels: &Channels) {
    loop {
        select! {
            recv(channels.running) -> _ => break,
            recv(channels.done) -> done => {
                let done = done.expect("the books hold a sender");
                if let Some(landed) = shared.change(|books| books.land(done)) {
                    deliver(shared, channels, landed);
                }
            }
        }
    }
    stop(shared, channels);
}

/// Hands a read to compute. The books are not locked: a lease that nobody takes
/// ends here.
fn deliver(shared: &Arc<Shared>, channels: &Channels, landed: Landed) {
    let Landed { sweep, expert } = landed;
    let expert = expert.map(|leased| ExpertLease::new(leased, Arc::clone(shared)));
    // There is room for every slot and the sweep's one error. Compute may be
    // gone: then it has said so.
    let _ = channels.deliveries.send(Delivery { sweep, expert });
}

/// Drops what is queued and waits for what is in flight.
fn stop(shared: &Shared, channels: &Channels) {
    shared.books.lock().give_up();
    while shared.books.lock().flight_count() > 0 {
        let done = channels.done.recv().expect("the books hold a sender");
        let landed = shared.books.lock().land(done);
        assert!(landed.is_none(), "nobody waits any more");
    }
}
