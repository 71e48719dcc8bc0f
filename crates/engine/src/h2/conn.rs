//! The state that the streams of one connection share: their list, and the connection's windows, limits and error.
//! Sending is in [`super::sending`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use lacquer_h2::flow::{INITIAL_WINDOW, ReceiveWindow, SendWindow};
use lacquer_h2::frame::{self, FrameHeader, Kind};
use lacquer_h2::settings::Settings;
use lacquer_h2::stream::charge_connection;
use lacquer_h2::{Error, Fault, Note};
use lacquer_net::ClientSocket;
use lacquer_params::Params;
use lacquer_shm::Tag;

use super::conduct::Conduct;
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
    services: Rc<Services>,
    sess: Rc<Sess>,
    pub(super) output: Output,
    settings: SettingsPair,
    windows: Windows,
    conduct: Conduct,
    account: Cell<Account>,
    error: Cell<Option<Error>>,
    streams: Streams,
    wakes: Wakes,
}

/// The settings of both sides.
struct SettingsPair {
    local: Settings,
    remote: Cell<Settings>,
    /// The client has made the header table smaller, which the next header block has to confirm.
    has_smaller_table: Cell<bool>,
}

/// The connection-level flow-control windows.
struct Windows {
    send: Cell<SendWindow>,
    receive: Cell<ReceiveWindow>,
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
        Conn {
            output: Output::new(tx),
            windows: Windows {
                send: Cell::new(SendWindow::new(INITIAL_WINDOW)),
                receive: Cell::new(ReceiveWindow::new(INITIAL_WINDOW)),
            },
            conduct: Conduct::new(params, local.max_concurrent_streams, sess.opened()),
            settings: SettingsPair {
                local,
                remote: Cell::new(Settings::DEFAULT),
                has_smaller_table: Cell::new(false),
            },
            account: Cell::default(),
            error: Cell::new(None),
            streams: Streams::default(),
            wakes: Wakes::default(),
            services,
            sess,
        }
    }

    #[inline]
    pub fn services(&self) -> &Rc<Services> {
        &self.services
    }

    #[inline]
    pub fn sess(&self) -> &Rc<Sess> {
        &self.sess
    }

    #[inline]
    pub fn conduct(&self) -> &Conduct {
        &self.conduct
    }

    // Settings.

    /// Returns the settings that this side has announced.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings.local
    }

    /// Returns the settings that the client has announced.
    #[inline]
    pub fn client_settings(&self) -> Settings {
        self.settings.remote.get()
    }

    pub fn set_client_settings(&self, settings: Settings) {
        let before = self.settings.remote.replace(settings);
        if settings.header_table_size < before.header_table_size {
            self.settings.has_smaller_table.set(true);
        }
    }

    /// Returns whether the client has made the header table smaller since the last header block.
    pub(super) fn take_smaller_table(&self) -> bool {
        self.settings.has_smaller_table.take()
    }

    // The log and the account.

    pub fn log(&self, tag: Tag, text: std::fmt::Arguments<'_>) {
        self.services.log().write_fmt(tag, self.sess.vxid(), text);
    }

    /// Logs a record of the protocol's rules with the session.
    pub fn note(&self, note: &Note) {
        let tag = match note.tag {
            lacquer_h2::Tag::Debug => Tag::Debug,
            lacquer_h2::Tag::SessError => Tag::SessError,
            _ => Tag::BogoHeader,
        };
        self.services.log().write(tag, self.sess.vxid(), note.text.as_bytes());
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
            log.write_binary(Tag::H2RxHdr, self.sess.vxid(), &header.bytes());
            if !payload.is_empty() {
                log.write_binary(Tag::H2RxBody, self.sess.vxid(), payload);
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

    /// Logs and counts a frame that is about to be sent.
    pub(super) fn sends(&self, header: &FrameHeader, payload: &[u8]) {
        let mut account = self.account.get();
        account.resp_header += frame::HEADER_LEN as u64;
        if header.kind().is_some_and(Kind::is_overhead) {
            account.resp_body += u64::from(header.len);
        }
        self.account.set(account);
        let (log, vxid) = (self.services.log(), self.sess.vxid());
        log.write_binary(Tag::H2TxHdr, vxid, &header.bytes());
        if !payload.is_empty() {
            log.write_binary(Tag::H2TxBody, vxid, payload);
        }
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

    // Windows.

    /// Charges a received DATA frame, including its padding, to the connection's window. Extends the window when it is
    /// low, and returns the extension to announce to the client.
    pub fn charge_received(&self, header: &FrameHeader) -> Result<u32, Error> {
        let mut window = self.windows.receive.get();
        charge_connection(&mut window, header).map_err(|fault| self.log_fault(&fault))?;
        let params = self.services.params();
        // Varnish applies a larger initial stream window to the connection's window too, and then sends no update.
        let spare = self.settings.local.initial_window_size.saturating_sub(INITIAL_WINDOW);
        let low = (params.h2_rx_window_low_water as u32).saturating_sub(spare).max(INITIAL_WINDOW / 2);
        let more = window.refill(low, params.h2_rx_window_increment as u32);
        self.windows.receive.set(window);
        Ok(more)
    }

    /// Adds the client's credit for body bytes, and wakes the streams that wait for it.
    pub fn add_credit(&self, increment: u32) -> Result<(), Error> {
        let mut window = self.windows.send.get();
        let credited = window.credit(increment);
        self.windows.send.set(window);
        self.wake_streams();
        credited
    }

    /// Returns the number of body bytes that the connection's window allows.
    #[inline]
    pub fn credit(&self) -> usize {
        self.windows.send.get().available()
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
        self.conduct.open() <= self.streams.waiting.get()
    }

    /// Logs the session's account, and counts the bytes of frames that belong to no request.
    pub fn finish(&self) {
        self.account.get().close(self.services.log(), self.sess.vxid(), self.services.counters());
    }
}

fn local_settings(params: &Params) -> Settings {
    Settings {
        header_table_size: params.h2_header_table_size as u32,
        max_concurrent_streams: params.h2_max_concurrent_streams,
        initial_window_size: params.h2_initial_window_size as u32,
        max_frame_size: params.h2_max_frame_size as u32,
        max_header_list_size: params.http_req_size as u32,
        enable_connect_protocol: u32::from(!params.upgrade_protocols.is_empty()),
        ..Settings::DEFAULT
    }
}
