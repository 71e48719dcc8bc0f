//! The origin all caches fetch from: as fast as the floor, with size, cacheability, delay and the cost of
//! a page in CPU time as options. Responses of one size are made once a second, for they are dated (Squid
//! keeps nothing that has no Date).

use crate::options::Options;
use crate::pages::Body;
use crate::server::{Answer, Reply, Server};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Beginning of a request for the number of requests so far; it is not counted itself.
const ASKED: &[u8] = b"GET /asked ";

/// Cacheability that an answer declares in its headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kept {
    AsSaid,
    NotAtAll,
    NoTime,
}

/// Properties of an answer: requests with the same ones get the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Wanted {
    size: usize,
    kept: Kept,
    body: Body,
}

struct Origin {
    size: usize,
    cache_control: String,
    cpu: Duration,
    delay: Duration,
    close: bool,
    made: HashMap<Wanted, Rc<[u8]>>,
    made_at: u64,
    asked: u64,
}

impl Answer for Origin {
    fn answer(&mut self, request: &[u8]) -> Reply {
        if request.starts_with(ASKED) {
            return self.answer_how_often();
        }
        self.asked += 1;
        if !self.cpu.is_zero() && !has(request, b"\r\nX-Warm:") {
            burn(self.cpu);
        }
        self.forget_what_is_old();
        let path = path(request);
        let wanted = Wanted {
            size: size_in(path).unwrap_or(self.size),
            kept: kept(path),
            body: Body::wanted_by(path),
        };
        let bytes = match self.made.get(&wanted) {
            Some(bytes) => bytes.clone(),
            None => self.make(wanted),
        };
        Reply { bytes, file: None, delay: self.delay, close: self.close }
    }
}

impl Origin {
    fn answer_how_often(&self) -> Reply {
        let number = self.asked.to_string();
        let bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}", number.len());
        Reply { bytes: bytes.into_bytes().into(), file: None, delay: Duration::ZERO, close: false }
    }

    fn forget_what_is_old(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now != self.made_at {
            self.made.clear();
            self.made_at = now;
        }
    }

    fn make(&mut self, wanted: Wanted) -> Rc<[u8]> {
        let body = wanted.body.make(wanted.size);
        let cache_control = match wanted.kept {
            Kept::AsSaid => &self.cache_control,
            Kept::NotAtAll => "private",
            Kept::NoTime => "max-age=0",
        };
        let connection = if self.close { "Connection: close\r\n" } else { "" };
        let date = lacquer_http::date::format(self.made_at as f64);
        let date = String::from_utf8_lossy(&date);
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: origin\r\nDate: {date}\r\nContent-Type: text/html; charset=utf-8\r\n\
             Cache-Control: {cache_control}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{connection}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let bytes: Rc<[u8]> = [head.as_bytes(), &body].concat().into();
        self.made.insert(wanted, bytes.clone());
        bytes
    }
}

/// Spends processor time, as a page made by a script does.
fn burn(time: Duration) {
    let started = cpu_time();
    while cpu_time().saturating_sub(started) < time {
        std::hint::spin_loop();
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn path(request: &[u8]) -> &[u8] {
    request.split(|&b| b == b' ').nth(1).unwrap_or_default()
}

fn kept(path: &[u8]) -> Kept {
    match (has(path, b"/private/"), has(path, b"/zero/")) {
        (true, _) => Kept::NotAtAll,
        (_, true) => Kept::NoTime,
        _ => Kept::AsSaid,
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|w| w.eq_ignore_ascii_case(part))
}

/// `/1400/anything` asks for 1400 bytes.
fn size_in(path: &[u8]) -> Option<usize> {
    let path = path.strip_prefix(b"/")?;
    let digits = path.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&path[..digits]).ok()?.parse().ok()
}

pub fn run(options: &Options) -> Result<(), String> {
    let origin = Origin {
        size: options.number("size", 1400)?,
        cache_control: options.text("cache-control", "max-age=86400").to_owned(),
        cpu: Duration::from_millis(options.number("cpu-ms", 0)?),
        delay: Duration::from_millis(options.number("delay-ms", 0)?),
        close: options.is_set("close"),
        made: HashMap::new(),
        made_at: 0,
        asked: 0,
    };
    let address = options.address("listen")?;
    Server::new(address, origin).and_then(Server::run).map_err(|error| format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{path, size_in};

    #[test]
    fn a_path_may_name_its_size() {
        assert_eq!(size_in(path(b"GET /1400/page HTTP/1.1\r\n\r\n")), Some(1400));
        assert_eq!(size_in(path(b"GET /page/1400 HTTP/1.1\r\n\r\n")), None);
    }
}
