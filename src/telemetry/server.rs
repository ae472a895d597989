//! Serves the page over HTTP: a listener, and a short-lived thread for each request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Makes the page anew for each request.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// How long a client may take for its request, and to read the page.
const LIMIT: Duration = Duration::from_secs(2);
const REQUEST_MAX: usize = 8192;
/// More clients at a time are turned away.
const CLIENTS_MAX: usize = 16;

/// `9400` and `:9400` are this machine only; `0.0.0.0:9400` is everybody.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let with_name = text.replacen("localhost:", "127.0.0.1:", 1);
    with_name
        .parse()
        .map_err(|_| "an address is a port (this machine only), or an IP address and a port".to_owned())
}

/// Serves until the process ends. Returns the address, whose port the system chose if 0 was asked for.
pub fn start(address: SocketAddr, page: Page) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let clients = Arc::new(AtomicUsize::new(0));
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // No descriptors, say: the next client may find some.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let (page, clients) = (Arc::clone(&page), Arc::clone(&clients));
            // Relaxed: a number, which guards nothing else.
            if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let its_clients = Arc::clone(&clients);
            let answer = move || {
                // A client that went away is no error.
                let _ = answer(stream, &page);
                its_clients.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("prometheus".into()).spawn(answer).is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().name("prometheus".into()).spawn(serve)?;
    Ok(address)
}

fn answer(mut stream: TcpStream, page: &Page) -> io::Result<()> {
    stream.set_write_timeout(Some(LIMIT))?;
    let request = read(&mut stream)?;
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", page()),
        ("GET" | "HEAD", "/") => ("200 OK", "gputrace monitor: see /metrics\n".to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// The request up to its empty line.
fn read(stream: &mut TcpStream) -> io::Result<String> {
    let (deadline, mut request, mut part) = (Instant::now() + LIMIT, Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&part[..count]);
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_this_machine_unless_another_one_is_named() {
        for (text, address) in [
            ("9400", "127.0.0.1:9400"),
            (":9400", "127.0.0.1:9400"),
            ("localhost:9400", "127.0.0.1:9400"),
            ("0.0.0.0:9400", "0.0.0.0:9400"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(parse(text).map(|address| address.to_string()).as_deref(), Ok(address), "{text}");
        }
        for wrong in ["", "host", "1.2.3.4", "70000", "http://localhost:9400", "1.2.3.4:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
