//! Waiting for a server that says nothing, for as long as somebody wants to.
//!
//! A read from a connection cannot be ended from outside. So each request has a
//! thread of its own, which reads and hands over; whoever waits looks now and
//! then whether to go on. A thread that nobody waits for any more ends with what
//! it waits for itself: at the latest when its time is up, or with the program.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How often whoever waits looks whether to go on.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Bytes handed over at once.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are read ahead of their use.
const PIECES_AHEAD: usize = 2;

/// Whether to go on waiting.
pub(crate) type GoOn<'a> = &'a dyn Fn() -> bool;

/// Bytes of an answer as they come. The last piece is empty.
#[derive(Debug)]
pub(crate) struct Body {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    /// Bytes of `piece` that are used.
    used: usize,
    is_over: bool,
}

/// Does `ask` on a thread of its own: what it returns and the body that follows.
///
/// # Errors
///
/// What `ask` returns; no thread; and, as [`stopped`], nobody who waits.
pub(crate) fn ask<H, E>(
    go_on: GoOn<'_>,
    ask: impl FnOnce() -> Result<(H, Box<dyn Read + Send>), E> + Send + 'static,
) -> io::Result<Result<(H, Body), E>>
where
    H: Send + 'static,
    E: Send + 'static,
{
    let (head_sender, heads) = sync_channel(1);
    let (sender, pieces) = sync_channel(PIECES_AHEAD);
    let read = move || match ask() {
        // Nobody may listen any more: then there is nothing left to do.
        Err(error) => drop(head_sender.send(Err(error))),
        Ok((head, body)) => {
            if head_sender.send(Ok(head)).is_ok() {
                hand_over(body, &sender);
            }
        }
    };
    let thread = thread::Builder::new().name("k3-http".to_owned());
    thread.spawn(read)?;
    let head = wait(&heads, go_on)?;
    Ok(head.map(|head| {
        let body = Body {
            pieces,
            piece: Vec::new(),
            used: 0,
            is_over: false,
        };
        (head, body)
    }))
}

/// Reads to the end, or until nobody listens.
fn hand_over(mut body: Box<dyn Read + Send>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = body.read(&mut piece).map(|count| {
            piece.truncate(count);
            piece
        });
        let is_last = match &read {
            Ok(piece) => piece.is_empty(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => true,
        };
        if sender.send(read).is_err() || is_last {
            return;
        }
    }
}

impl Body {
    /// Fills a part of `out`, if it is not empty; 0 at the end.
    ///
    /// # Errors
    ///
    /// A connection that breaks or is silent for too long, and [`stopped`].
    pub(crate) fn read(&mut self, out: &mut [u8], go_on: GoOn<'_>) -> io::Result<usize> {
        if self.used == self.piece.len() && !self.is_over {
            self.piece = wait(&self.pieces, go_on)??;
            self.used = 0;
            self.is_over = self.piece.is_empty();
        }
        let left = &self.piece[self.used..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.used += count;
        Ok(count)
    }
}

/// What comes next.
fn wait<T>(from: &Receiver<T>, go_on: GoOn<'_>) -> io::Result<T> {
    loop {
        match from.recv_timeout(LOOK_AGAIN) {
            Ok(next) => return Ok(next),
            Err(RecvTimeoutError::Timeout) if go_on() => {}
            Err(RecvTimeoutError::Timeout) => return Err(stopped()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the request ended without an answer"));
            }
        }
    }
}

/// Nobody waits any more.
fn stopped() -> io::Error {
    io::Error::other("stopped")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;

    /// Says nothing for longer than any test takes.
    struct Mute;

    impl Read for Mute {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            thread::sleep(Duration::from_secs(600));
            Ok(0)
        }
    }

    /// Goes on for `looks` looks.
    fn patience(looks: u32) -> impl Fn() -> bool {
        let left = AtomicU32::new(looks);
        move || left.fetch_sub(1, Ordering::Relaxed) > 0
    }

    fn answered(body: impl Read + Send + 'static) -> Body {
        let ask_it = move || Ok::<_, ()>(((), Box::new(body) as Box<dyn Read + Send>));
        ask(&|| true, ask_it).unwrap().unwrap().1
    }

    #[test]
    fn all_bytes_come_in_order_however_they_are_taken() {
        let bytes: Vec<u8> = (0..700_001_u32).map(|i| i.to_le_bytes()[0]).collect();
        for room in [1, 1000, PIECE_BYTES, 1 << 20] {
            let mut body = answered(io::Cursor::new(bytes.clone()));
            let mut found = Vec::new();
            let mut buffer = vec![0; room];
            loop {
                match body.read(&mut buffer, &|| true).unwrap() {
                    0 => break,
                    count => found.extend_from_slice(&buffer[..count]),
                }
            }
            assert!(found == bytes, "{room}");
            assert_eq!(body.read(&mut buffer, &|| true).unwrap(), 0, "still over");
        }
    }

    #[test]
    fn nobody_has_to_wait_for_a_head_or_a_body_that_does_not_come() {
        let started = Instant::now();
        let silent = || -> Result<((), Box<dyn Read + Send>), ()> {
            thread::sleep(Duration::from_secs(600));
            Err(())
        };
        ask(&patience(2), silent).unwrap_err();
        let mut body = answered(Mute);
        body.read(&mut [0], &patience(2)).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_breaks_is_told() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                out[..3].copy_from_slice(b"abc");
                Ok(3)
            }
        }
        let mut body = answered(Broken(false));
        let mut out = [0; 8];
        assert_eq!(body.read(&mut out, &|| true).unwrap(), 3);
        let error = body.read(&mut out, &|| true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let failed = ask(&|| true, || Err::<((), Box<dyn Read + Send>), _>(7));
        assert_eq!(failed.unwrap().unwrap_err(), 7);
    }
}
