//! One connection of a hub.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::{DEFAULT_REPO, Exchange, HUB_COMMIT, HUB_REPO, HubFault, Shared, Stored, is_large};

/// What was asked for.
struct Request {
    target: String,
    range: Option<(u64, u64)>,
    authorization: Option<String>,
}

/// Answers requests until the other side goes or a fault ends it.
pub(super) fn serve(stream: TcpStream, shared: &Shared) {
    // A test that forgets a connection does not keep its thread.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let Ok(clone) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(clone);
    while let Ok(Some(request)) = read(&mut reader) {
        let mut exchange = Exchange {
            target: request.target.clone(),
            range: request.range,
            authorization: request.authorization.clone(),
            status: 0,
            body_bytes: 0,
        };
        shared.state().busy += 1;
        let goes_on = answer(&stream, shared, &request, &mut exchange);
        let mut state = shared.state();
        state.log.push(exchange);
        state.busy -= 1;
        drop(state);
        match goes_on {
            Ok(true) => {}
            Ok(false) => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            // Closed as it is: a reset, if that was asked for.
            Err(_) => return,
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request {
        target,
        range: None,
        authorization: None,
    };
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some(request));
        }
        let Some((name, value)) = line.trim().split_once(": ") else {
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let range = value
                    .strip_prefix("bytes=")
                    .and_then(|range| range.split_once('-'));
                request.range =
                    range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
            }
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Whether the connection goes on.
fn answer(
    stream: &TcpStream,
    shared: &Shared,
    request: &Request,
    exchange: &mut Exchange,
) -> io::Result<bool> {
    let wanted = shared
        .state()
        .token
        .clone()
        .map(|token| format!("Bearer {token}"));
    if wanted.is_some() && wanted != request.authorization {
        exchange.status = 401;
        return small(stream, "401 Unauthorized", "", "no");
    }
    exchange.status = 200;
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let is_other = path.contains(DEFAULT_REPO);
    let repo = if is_other { DEFAULT_REPO } else { HUB_REPO };
    for revision in ["main", HUB_COMMIT] {
        if path == format!("/api/models/{repo}/revision/{revision}") {
            let text = format!("{{\"id\": \"{repo}\", \"sha\": \"{HUB_COMMIT}\"}}");
            return small(stream, "200 OK", "", &text);
        }
    }
    if path == format!("/api/models/{repo}/tree/{HUB_COMMIT}") {
        let start = query
            .split('&')
            .find_map(|part| part.strip_prefix("cursor=")?.parse().ok());
        let (text, more) = shared.state().tree(start.unwrap_or(0));
        let link = more.map_or_else(String::new, |next| {
            format!("Link: <{path}?recursive=true&cursor={next}>; rel=\"next\"\r\n")
        });
        return small(stream, "200 OK", &link, &text);
    }
    let name = path.strip_prefix(&format!("/{repo}/resolve/{HUB_COMMIT}/"));
    let name = name.map(|name| name.replace("%20", " "));
    let stored = name
        .as_ref()
        .and_then(|name| shared.state().files.get(name).cloned());
    let (Some(name), Some(stored)) = (name, stored) else {
        exchange.status = 404;
        return small(stream, "404 Not Found", "", "no such thing");
    };
    let redirect = shared.state().redirect.clone();
    if let Some(to) = redirect
        && is_large(&name)
    {
        exchange.status = 302;
        let location = format!("Location: {to}/{name}?signature=secret\r\n");
        return small(stream, "302 Found", &location, "elsewhere");
    }
    let fault = shared.state().fault(&name);
    file(stream, shared, (&name, &stored), request, fault, exchange)
}

fn small(mut stream: &TcpStream, status: &str, headers: &str, text: &str) -> io::Result<bool> {
    let length = text.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all((head + text).as_bytes())?;
    Ok(true)
}

fn file(
    mut stream: &TcpStream,
    shared: &Shared,
    (name, stored): (&str, &Stored),
    request: &Request,
    fault: Option<HubFault>,
    exchange: &mut Exchange,
) -> io::Result<bool> {
    match &fault {
        Some(HubFault::Silence) => {
            exchange.status = 0;
            return Ok(false);
        }
        Some(HubFault::Status(status, retry_after)) => {
            exchange.status = *status;
            let header = retry_after
                .as_ref()
                .map_or_else(String::new, |value| format!("Retry-After: {value}\r\n"));
            return small(stream, &format!("{status} No"), &header, "not now");
        }
        Some(HubFault::Redirect(to)) => {
            exchange.status = 302;
            return small(
                stream,
                "302 Found",
                &format!("Location: {to}\r\n"),
                "elsewhere",
            );
        }
        _ => {}
    }
    let bytes = &stored.bytes;
    let length = bytes.len() as u64;
    let range = request
        .range
        .filter(|_| fault != Some(HubFault::IgnoreRange));
    let (first, end) = match range {
        Some((first, _)) if first >= length => {
            exchange.status = 416;
            return small(
                stream,
                "416 Range Not Satisfiable",
                &format!("Content-Range: bytes */{length}\r\n"),
                "",
            );
        }
        Some((first, last)) => (first, length.min(last + 1)),
        None => (0, length),
    };
    let body = bytes[index(first)..index(end)].to_vec();
    let (mut stated, mut told) = (body.len() as u64, first);
    match &fault {
        Some(HubFault::LongLength(more)) => stated += more,
        Some(HubFault::ShortLength(less)) => stated -= less,
        Some(HubFault::WrongRange(more)) => told += more,
        _ => {}
    }
    let (status, place) = match range {
        None => ("200 OK", String::new()),
        Some(_) => {
            let last = told + (end - first) - 1;
            (
                "206 Partial Content",
                format!("Content-Range: bytes {told}-{last}/{length}\r\n"),
            )
        }
    };
    exchange.status = if range.is_some() { 206 } else { 200 };
    let version = stored.version;
    let size = match &fault {
        Some(HubFault::Unstated(_)) => "Connection: close\r\n".to_owned(),
        _ => format!("Content-Length: {stated}\r\n"),
    };
    let head = format!("HTTP/1.1 {status}\r\n{size}{place}ETag: \"{name}-{version}\"\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    send(stream, shared, name, body, fault, exchange)
}

fn send(
    mut stream: &TcpStream,
    shared: &Shared,
    name: &str,
    mut body: Vec<u8>,
    fault: Option<HubFault>,
    exchange: &mut Exchange,
) -> io::Result<bool> {
    let whole = body.len() as u64;
    let cut = |bytes: u64| index(bytes.min(whole));
    let mut put = |part: &[u8]| -> io::Result<()> {
        stream.write_all(part)?;
        exchange.body_bytes += part.len() as u64;
        Ok(())
    };
    match fault {
        Some(HubFault::Truncate(bytes)) => {
            put(&body[..cut(bytes)])?;
            return Ok(false);
        }
        Some(HubFault::Reset(bytes)) => {
            put(&body[..cut(bytes)])?;
            // What was sent is to arrive before the reset.
            std::thread::sleep(Duration::from_millis(20));
            reset(stream)?;
        }
        Some(HubFault::ShortLength(less)) => {
            put(&body[..index(whole - less)])?;
            return Ok(false);
        }
        Some(HubFault::LongLength(_)) => {
            put(&body)?;
            return Ok(false);
        }
        Some(HubFault::FlipByte) => {
            let middle = body.len() / 2;
            body[middle] ^= 1;
            put(&body)?;
        }
        Some(HubFault::Stall(bytes, milliseconds)) => {
            put(&body[..cut(bytes)])?;
            std::thread::sleep(Duration::from_millis(milliseconds));
            put(&body[cut(bytes)..])?;
        }
        Some(HubFault::Change) => {
            let half = body.len() / 2;
            put(&body[..half])?;
            if let Some(stored) = shared.state().files.get_mut(name) {
                stored.version += 1;
                let former = stored.bytes.as_ref().clone();
                stored.bytes = Arc::new(former);
            }
            return Ok(false);
        }
        Some(HubFault::Unstated(more)) => {
            body.resize(index(whole + more), 0);
            put(&body)?;
            return Ok(false);
        }
        _ => put(&body)?,
    }
    Ok(true)
}

/// Has the connection end with a reset instead of in order.
fn reset(stream: &TcpStream) -> io::Result<()> {
    let at_once = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(stream, sockopt::Linger, &at_once)?;
    Err(io::ErrorKind::ConnectionReset.into())
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("files of tests are small")
}
