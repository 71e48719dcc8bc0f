//! The state that the streams of one connection share: their list, and the connection's windows, limits and error.
//! Sending is in [`super::sending`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use lacquer_h2::flow::{INITIAL_WINDOW, ReceiveWindow, SendWindow};
use lacquer_h2::frame::{self, FrameHeader, Kind};
use lacquer_h2::rules::{RapidReset, Rules};
use lacquer_h2::settings::Settings;
use lacquer_h2::{Error, Fault, Note};
use lacquer_net::ClientSocket;
use lacquer_params::Params;
use lacquer_shm::{Tag, Vxid};
use lacquer_vcl_runtime::H2Setting;

use super::output::Output;
use crate::account::Account;
use crate::services::Services;
use crate::session::Sess;

/// A stream in the connection's list. A trait, because the type of streams depends on the connection's.
pub trait StreamEntry: Any {
    /// Wakes the tasks that wait for the stream.
    fn wake(&self);
}

pub struct Conn {
    pub services: Rc<Services>,
    pub sess: Rc<Sess>,
    pub vxid: Vxid,
    pub output: Output,
    pub settings: SettingsPair,
    pub windows: Windows,
    pub conduct: Conduct,
    pub account: Cell<Account>,
    error: Cell<Option<Error>>,
    streams: Streams,
    wakes: Wakes,
}

/// The settings of both sides.
pub struct SettingsPair {
    pub local: Settings,
    pub remote: Cell<Settings>,
}

/// The connection-level flow-control windows.
pub struct Windows {
    pub send: Cell<SendWindow>,
    pub receive: Cell<ReceiveWindow>,
}

/// The client's behavior so far, which decides how its next frames are treated.
pub struct Conduct {
    pub rules: RefCell<Rules>,
    pub resets: RefCell<RapidReset>,
    /// The last stream that this side reset; 0 if there is none.
    pub last_reset: Cell<u32>,
    /// A GOAWAY was sent or received.
    pub goaway_seen: Cell<bool>,
    /// The client knows that the connection will end soon.
    pub is_leaving: Cell<bool>,
}

#[derive(Default)]
struct Streams {
    /// The streams in the order of their ids, which only increase.
    list: RefCell<Vec<(u32, Rc<dyn StreamEntry>)>>,
    /// The number of streams that wait for a window.
    waiting: Cell<u32>,
}

#[derive(Default)]
struct Wakes {
    waker: RefCell<Option<Waker>>,
    /// The connection's own task is running, so it need not be woken.
    is_running: Cell<bool>,
}

impl Conn {
    pub fn new(services: Rc<Services>, sess: Rc<Sess>, tx: Rc<ClientSocket>, params: &Params) -> Conn {
        let local = local_settings(params);
        let resets = RapidReset::new(
            params.h2_rapid_reset,
            u64::from(params.h2_rapid_reset_limit),
            params.h2_rapid_reset_period,
            sess.opened(),
        );
        Conn {
            vxid: sess.vxid(),
            services,
            sess,
            output: Output::new(tx),
            windows: Windows {
                send: Cell::new(SendWindow::new(INITIAL_WINDOW)),
                receive: Cell::new(ReceiveWindow::new(INITIAL_WINDOW)),
            },
            conduct: Conduct {
                rules: RefCell::new(Rules::new(local.max_concurrent_streams)),
                resets: RefCell::new(resets),
                last_reset: Cell::new(0),
                goaway_seen: Cell::new(false),
                is_leaving: Cell::new(false),
            },
            settings: SettingsPair { local, remote: Cell::new(Settings::DEFAULT) },
            account: Cell::default(),
            error: Cell::new(None),
            streams: Streams::default(),
            wakes: Wakes::default(),
        }
    }

    pub fn log(&self, tag: Tag, text: std::fmt::Arguments<'_>) {
        self.services.log().write_fmt(tag, self.vxid, text);
    }

    /// Logs a record of the protocol's rules with the session.
    pub fn note(&self, note: &Note) {
        let tag = match note.tag {
            lacquer_h2::Tag::Debug => Tag::Debug,
            lacquer_h2::Tag::SessError => Tag::SessError,
            _ => Tag::BogoHeader,
        };
        self.services.log().write(tag, self.vxid, note.text.as_bytes());
    }

    /// Logs the reason for a fault, and returns its error, which ends the stream or the connection.
    pub fn log_fault(&self, fault: &Fault) -> Error {
        if let Some(note) = &fault.note {
            self.note(note);
        }
        fault.error
    }

    // The end.

    pub fn error(&self) -> Option<Error> {
        self.error.get()
    }

    /// Ends the connection with this error, unless it is already ending with another.
    pub fn fail(&self, error: Error) {
        if self.error.get().is_none() {
            self.error.set(Some(error));
        }
        self.wake();
        self.wake_streams();
    }

    /// Logs and counts a received frame. Its header, and the payload of overhead frames, belong to no stream.
    pub fn received(&self, header: &FrameHeader, payload: &[u8]) {
        let log = self.services.log();
        if !(log.is_masked(Tag::H2RxHdr) && log.is_masked(Tag::H2RxBody)) {
            log.write_binary(Tag::H2RxHdr, self.vxid, &header.bytes());
            if !payload.is_empty() {
                log.write_binary(Tag::H2RxBody, self.vxid, payload);
            }
            self.log(Tag::Debug, format_args!("H2RXF {}", header.describe(payload)));
        }
        let mut account = self.account.get();
        account.req_header += frame::HEADER_LEN as u64;
        if header.kind().is_none_or(Kind::is_overhead) {
            account.req_body += u64::from(header.len);
        }
        self.account.set(account);
    }

    // Wake-ups.

    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.wakes.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Wakes the connection's own task.
    pub fn wake(&self) {
        if self.wakes.is_running.get() {
            return;
        }
        if let Some(waker) = self.wakes.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub fn set_running(&self, running: bool) {
        self.wakes.is_running.set(running);
    }

    pub fn wake_streams(&self) {
        for (_, stream) in self.streams.list.borrow().iter() {
            stream.wake();
        }
    }

    // The session's own limits, for the VMOD h2.

    pub fn limit(&self, which: H2Setting) -> f64 {
        let resets = self.conduct.resets.borrow();
        match which {
            H2Setting::RapidReset => resets.threshold,
            H2Setting::RapidResetLimit => resets.limit,
            H2Setting::RapidResetPeriod => resets.period,
            H2Setting::RapidResetBudget => resets.budget,
        }
    }

    pub fn set_limit(&self, which: H2Setting, value: f64, now: f64) {
        let mut resets = self.conduct.resets.borrow_mut();
        match which {
            H2Setting::RapidReset => resets.threshold = value,
            H2Setting::RapidResetLimit => resets.limit = value,
            H2Setting::RapidResetPeriod => resets.period = value,
            H2Setting::RapidResetBudget => return,
        }
        resets.restart(now);
    }

    // Streams.

    pub fn stream(&self, id: u32) -> Option<Rc<dyn StreamEntry>> {
        let streams = self.streams.list.borrow();
        let at = streams.binary_search_by_key(&id, |(number, _)| *number).ok()?;
        Some(streams[at].1.clone())
    }

    pub fn each_stream(&self, mut work: impl FnMut(&dyn StreamEntry)) {
        self.streams.list.borrow().iter().for_each(|(_, stream)| work(&**stream));
    }

    pub fn enter(&self, id: u32, stream: Rc<dyn StreamEntry>) {
        self.streams.list.borrow_mut().push((id, stream));
    }

    pub fn leave(&self, id: u32) {
        let mut streams = self.streams.list.borrow_mut();
        if let Ok(at) = streams.binary_search_by_key(&id, |(number, _)| *number) {
            streams.remove(at);
        }
        if streams.is_empty() {
            drop(streams);
            self.wake();
        }
    }

    /// Drops the streams, which refer to the connection, when the session ends.
    pub fn release_streams(&self) {
        let streams = self.streams.list.take();
        drop(streams);
    }

    pub fn streams(&self) -> usize {
        self.streams.list.borrow().len()
    }

    /// Returns whether so many requests are active, including reset ones, that no more should start.
    pub fn is_crowded(&self) -> bool {
        self.streams() >= 2 * self.settings.local.max_concurrent_streams.max(50) as usize
    }

    pub fn count_waiting(&self, more: i32) {
        self.streams.waiting.set(self.streams.waiting.get().saturating_add_signed(more));
    }

    /// Takes credit for this number of body bytes from the connection's window.
    pub fn charge(&self, bytes: usize) {
        let mut window = self.windows.send.get();
        window.charge(bytes);
        self.windows.send.set(window);
    }

    /// Returns unused credit to the connection's window, and wakes the streams that wait for it.
    pub fn refund(&self, bytes: usize) {
        let mut window = self.windows.send.get();
        window.adjust(bytes as i64);
        self.windows.send.set(window);
        self.wake_streams();
    }

    /// Returns whether all streams wait for windows that the client does not open.
    pub fn is_bankrupt(&self) -> bool {
        self.conduct.rules.borrow().open <= self.streams.waiting.get()
    }

    /// Logs the session's account, and counts the bytes of frames that belong to no request.
    pub fn finish(&self) {
        let account = self.account.get();
        let [header, body, request, sent_header, sent_body, response] = account.numbers();
        let text = format_args!("{header} {body} {request} {sent_header} {sent_body} {response}");
        self.log(Tag::ReqAcct, text);
        account.count(self.services.counters());
    }
}

fn local_settings(params: &Params) -> Settings {
    Settings {
        header_table_size: params.h2_header_table_size as u32,
        max_concurrent_streams: params.h2_max_concurrent_streams,
        initial_window_size: params.h2_initial_window_size as u32,
        max_frame_size: params.h2_max_frame_size as u32,
        max_header_list_size: params.http_req_size as u32,
        ..Settings::DEFAULT
    }
}
