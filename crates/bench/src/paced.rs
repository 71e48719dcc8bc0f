//! Requests at a rate: each is due at its own moment, whether or not earlier responses are complete, like those of many
//! independent visitors. The latency of a request counts from the moment it is due, so that a pause of the server is
//! charged with all requests that had to wait, not only with those already sent. The moments are random, and the same
//! in every run.

use crate::client::{Client, Plan, Tally};
use lacquer_testing::Random;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The moments of a Poisson process, in seconds: gaps like those between independent visitors.
struct Moments {
    rate: f64,
    at: f64,
    random: Random,
}

impl Iterator for Moments {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // The upper bits give a number above 0 and at most 1.
        let uniform = ((self.random.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.at -= uniform.ln() / self.rate;
        Some(Duration::from_secs_f64(self.at))
    }
}

fn moments(rate: f64) -> Moments {
    Moments { rate, at: 0.0, random: Random(2) }
}

/// Sends all requests of the plan. A request that is due while every connection is busy waits for one. Each connection
/// begins with a request that does not count, to exclude the cost of opening it.
pub fn drive_all(address: SocketAddr, connections: usize, plan: &mut Plan, rate: f64) -> io::Result<Tally> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients =
        (0..connections).map(|slot| Client::connect(&epoll, address, slot)).collect::<Result<Vec<_>, _>>()?;
    let mut buffer = vec![0; 256 * 1024];
    let mut events = Vec::with_capacity(256);
    warm_up(&epoll, &mut clients, plan, &mut buffer)?;
    let mut free: VecDeque<usize> = (0..connections).collect();
    let mut moments = moments(rate).take(plan.left());
    let mut due = moments.next();
    let mut tally = Tally::default();
    let alarm = Alarm::new(&epoll)?;
    let begun = Instant::now();
    while due.is_some() || free.len() < connections {
        while let Some(at) = due.filter(|at| *at <= begun.elapsed()) {
            let Some(slot) = free.pop_front() else { break };
            due = moments.next();
            if clients[slot].send(plan, begun + at).is_err() {
                tally.errors += 1;
                clients[slot] = Client::connect_again(&epoll, address, slot, &mut tally)?;
                free.push_back(slot);
            }
            tally.late_micros.push(begun.elapsed().saturating_sub(at).as_micros() as u32);
        }
        if let Some(at) = due.filter(|_| !free.is_empty()) {
            alarm.set(at.saturating_sub(begun.elapsed()))?;
        }
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in events.iter().filter(|event| event.data.u64() != ALARM) {
            let slot = event.data.u64() as usize;
            match clients[slot].receive(&mut tally, &mut buffer) {
                Ok(true) => {
                    if clients[slot].is_last() {
                        clients[slot] = Client::connect_again(&epoll, address, slot, &mut tally)?;
                    }
                    free.push_back(slot);
                }
                Ok(false) => {}
                Err(_) => {
                    clients[slot] = Client::connect_again(&epoll, address, slot, &mut tally)?;
                    if !free.contains(&slot) {
                        tally.errors += 1;
                        free.push_back(slot);
                    }
                }
            }
        }
    }
    tally.took = begun.elapsed();
    Ok(tally)
}

/// Sends one request on each connection at once, and waits for the responses.
fn warm_up(epoll: &OwnedFd, clients: &mut [Client], plan: &mut Plan, buffer: &mut [u8]) -> io::Result<()> {
    let mut uncounted = Tally::default();
    let mut waiting = 0;
    for client in clients.iter_mut() {
        waiting += usize::from(client.send(plan, Instant::now())?);
    }
    let mut events = Vec::with_capacity(256);
    while waiting > 0 {
        events.clear();
        epoll::wait(epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            waiting -= usize::from(clients[event.data.u64() as usize].receive(&mut uncounted, buffer)?);
        }
    }
    Ok(())
}

/// A timer that wakes the epoll when the next request is due: a timeout of `epoll_wait` only has milliseconds.
struct Alarm(OwnedFd);

const ALARM: u64 = u64::MAX;

impl Alarm {
    fn new(epoll: &OwnedFd) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        epoll::add(epoll, &timer, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
        Ok(Self(timer))
    }

    fn set(&self, after: Duration) -> io::Result<()> {
        let after = after.max(Duration::from_nanos(1)); // zero would disarm the timer
        let it_value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_rate_and_are_the_same_every_time() {
        let hundred_seconds = moments(1000.0).nth(99_999).expect("they never end");
        assert!((99.0..101.0).contains(&hundred_seconds.as_secs_f64()), "{hundred_seconds:?}");
        assert!(moments(1000.0).take(1000).eq(moments(1000.0).take(1000)));
    }
}
