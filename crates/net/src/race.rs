//! Connecting to the first of several addresses that accepts (RFC 8305, "happy eyeballs").

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use lacquer_sources::clock::Instant;
use rustix::io::Errno;
use tokio::time::sleep_until;

/// The time that an attempt gets before the next one begins beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// Tries the addresses in their order. The next attempt begins when one fails or [`HEAD_START`] is over; the first
/// connection wins. Returns the last error if all fail.
pub async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut waiting = addresses.into_iter();
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    let mut last = io::Error::from(Errno::ADDRNOTAVAIL);
    let mut starts_next = true;
    let mut timer = Box::pin(sleep_until(Instant::now()));
    poll_fn(|context| {
        loop {
            if timer.as_mut().poll(context).is_ready() {
                starts_next = true;
            }
            if starts_next || running.is_empty() {
                starts_next = false;
                match waiting.next() {
                    Some(address) => running.push(Box::pin(connect(address))),
                    None if running.is_empty() => {
                        return Poll::Ready(Err(std::mem::replace(&mut last, Errno::ADDRNOTAVAIL.into())));
                    }
                    None => {}
                }
                // After the last address, the timer has no effect.
                timer.as_mut().reset(Instant::now() + HEAD_START);
            }
            let mut at = 0;
            while at < running.len() {
                match running[at].as_mut().poll(context) {
                    Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                    Poll::Ready(Err(error)) => {
                        last = error;
                        starts_next = true;
                        drop(running.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            if !starts_next && timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
    }

    /// Accepts or refuses at a port after as many milliseconds as the table says.
    async fn at(table: &[(u64, bool)], address: SocketAddr) -> io::Result<u16> {
        let (after, accepts) = table[usize::from(address.port()) - 1];
        tokio::time::sleep(Duration::from_millis(after)).await;
        if accepts { Ok(address.port()) } else { Err(Errno::CONNREFUSED.into()) }
    }

    async fn outcome(table: &[(u64, bool)]) -> (Result<u16, Option<i32>>, u128) {
        let start = Instant::now();
        let won = race(addresses(table.len() as u16), |address| at(table, address)).await;
        (won.map_err(|error| error.raw_os_error()), start.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_address_that_accepts_wins() {
        let refused = Err(Some(Errno::CONNREFUSED.raw_os_error()));
        assert_eq!(outcome(&[(10, true), (0, true)]).await, (Ok(1), 10));
        assert_eq!(
            outcome(&[(10, false), (5, true)]).await,
            (Ok(2), 15),
            "a failure starts the next at once"
        );
        assert_eq!(
            outcome(&[(100_000, true), (5, true)]).await,
            (Ok(2), 255),
            "silence does so after a while"
        );
        assert_eq!(outcome(&[(300, true), (100, true)]).await, (Ok(1), 300));
        assert_eq!(outcome(&[(1, false), (600, false), (1, false)]).await, (refused, 601));
        assert_eq!(outcome(&[]).await.0, Err(Some(Errno::ADDRNOTAVAIL.raw_os_error())));
    }
}
