//! The load generator. Sends a number of requests, or as many as a duration allows, over persistent connections. Each
//! connection sends its next request when the response to the last is complete, or requests are due at a rate
//! ([`paced`]). `{}` in the path is replaced by a running number, so every request can be for another object; with
//! `--among N`, by a number below N, in no order, but for the percentage of `--new`, whose numbers are new. The
//! latency of each request is recorded, so that the whole distribution is available. The kernel discards bodies without
//! copying them, so that with large bodies the server's core is saturated before the load generator's.

use crate::client::{Client, Plan, Tally};
use crate::options::Options;
use crate::paced;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub fn run(options: &Options) -> Result<(), String> {
    let address = options.address("connect")?;
    let first: u64 = options.number("first", 0)?;
    let seconds: f64 = options.number("seconds", 0.0)?;
    let count: u64 = options.number("count", if seconds > 0.0 { u64::MAX - first } else { 1000 })?;
    let rate: f64 = options.number("rate", 0.0)?;
    if seconds > 0.0 && rate > 0.0 {
        return Err("--rate requires --count and excludes --seconds".into());
    }
    let connections: usize = options.number("connections", 1)?;
    // With a rate, each connection begins with a request that is not counted.
    let end = first + count + if rate > 0.0 { connections as u64 } else { 0 };
    let until = (seconds > 0.0).then(|| Instant::now() + Duration::from_secs_f64(seconds));
    let mut plan = Plan::new(options.text("path", "/"), options.text("header", ""), first, end, until)
        .among(options.number("among", 0)?)
        .with_new(options.number("new", 0)?);
    let tally = if rate > 0.0 {
        paced::drive_all(address, connections, &mut plan, rate)
    } else {
        drive_all(address, connections, &mut plan)
    };
    let tally = tally.map_err(|error| format!("{address}: {error}"))?;
    println!("{}", report(tally));
    Ok(())
}

fn drive_all(address: SocketAddr, connections: usize, plan: &mut Plan) -> io::Result<Tally> {
    let started = Instant::now();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut tally = Tally::default();
    for slot in 0..connections {
        let mut client = Client::connect(&epoll, address, slot)?;
        if !client.send(plan, Instant::now())? {
            break;
        }
        clients.push(Some(client));
    }
    let mut busy = clients.len();
    let mut buffer = vec![0; 256 * 1024];
    let mut events = Vec::with_capacity(256);
    while busy > 0 {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let slot = event.data.u64() as usize;
            let Some(client) = clients[slot].as_mut() else { continue };
            let has_more = client.drive(plan, &mut tally, &mut buffer);
            if !matches!(has_more, Ok(true)) {
                tally.errors += u64::from(has_more.is_err());
                clients[slot] = None;
                busy -= 1;
            }
        }
    }
    tally.took = started.elapsed();
    Ok(tally)
}

pub fn report(tally: Tally) -> String {
    format!(
        "{{\"requests\": {}, \"errors\": {}, \"refused\": {}, \"bytes\": {}, \"seconds\": {:.6}, \"latency_us\": {}, \
         \"known_us\": {}, \"late_us\": {}}}",
        tally.micros.len(),
        tally.errors,
        tally.refused,
        tally.bytes,
        tally.took.as_secs_f64(),
        distribution(tally.micros),
        distribution(tally.known_micros),
        distribution(tally.late_micros)
    )
}

fn distribution(mut micros: Vec<u32>) -> String {
    micros.sort_unstable();
    let mut text = String::from("{");
    for (name, share) in [
        ("p1", 0.01),
        ("p10", 0.1),
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
    ] {
        let at = ((micros.len() as f64 * share) as usize).min(micros.len().saturating_sub(1));
        let _ = write!(text, "\"{name}\": {}, ", micros.get(at).copied().unwrap_or(0));
    }
    let _ = write!(text, "\"max\": {}}}", micros.last().copied().unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_json_with_the_distribution() {
        let tally = Tally { micros: (1..=100).rev().collect(), ..Tally::default() };
        let text = report(tally);
        assert!(
            text.contains("\"requests\": 100")
                && text.contains("\"p50\": 51")
                && text.contains("\"max\": 100}, \"known_us\""),
            "{text}"
        );
    }
}
