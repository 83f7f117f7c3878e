//! The server: `GET /metrics` in the text format, and a pointer to it at `/`.

use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::connection::BoundedListener;

/// The text format with its encoding, which the crate leaves to the reader.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What answers that are under way get when the run ends.
const GRACE: Duration = Duration::from_millis(200);

/// A server on a thread of its own. Dropping it ends it within [`GRACE`].
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    /// Dropped to end the server.
    alive: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` and serves `registry`.
    ///
    /// # Errors
    ///
    /// The system's, about the address or the thread.
    pub(super) fn start(address: SocketAddr, registry: Registry) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // One thread for everything: it never does more than a few readings.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (alive, ended) = watch::channel(());
        let thread = std::thread::Builder::new()
            .name("k3-metrics".to_owned())
            .spawn(move || serve(&runtime, listener, registry, ended))?;
        Ok(Self {
            address,
            alive: Some(alive),
            thread: Some(thread),
        })
    }

    /// Where it listens: the port is never 0.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A server that died served nobody, and the run is over.
            let _ = thread.join();
        }
    }
}

fn serve(
    runtime: &Runtime,
    listener: std::net::TcpListener,
    registry: Registry,
    ended: watch::Receiver<()>,
) {
    let router = Router::new()
        .route("/", get(pointer))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .layer(map_response(close))
        .with_state(registry);
    runtime.block_on(async move {
        // Fails only for a runtime without I/O.
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        let server = axum::serve(BoundedListener::new(listener), router)
            .with_graceful_shutdown(end_of(ended.clone()));
        tokio::select! {
            _ = server => {}
            () = after(end_of(ended), GRACE) => {}
        }
    });
}

/// Resolves when the sender is gone.
async fn end_of(mut ended: watch::Receiver<()>) {
    while ended.changed().await.is_ok() {}
}

async fn after(event: impl Future<Output = ()>, delay: Duration) {
    event.await;
    tokio::time::sleep(delay).await;
}

/// One answer for each connection: none waits for a next question.
async fn close(mut answer: Response) -> Response {
    let value = HeaderValue::from_static("close");
    answer.headers_mut().insert(header::CONNECTION, value);
    answer
}

type Answer = (StatusCode, [(HeaderName, &'static str); 1], String);

fn answer(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    (status, [(header::CONTENT_TYPE, content_type)], text)
}

async fn metrics(State(registry): State<Registry>) -> Answer {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => answer(StatusCode::OK, CONTENT_TYPE, text),
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            answer(status, PLAIN, format!("{error}\n"))
        }
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

async fn pointer() -> Answer {
    let text = "k3: the figures of this run are at /metrics\n";
    answer(StatusCode::OK, PLAIN, text.to_owned())
}

async fn not_found() -> Answer {
    let text = "not here: the figures of this run are at /metrics\n";
    answer(StatusCode::NOT_FOUND, PLAIN, text.to_owned())
}
