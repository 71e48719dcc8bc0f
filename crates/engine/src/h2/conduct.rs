//! The client's behavior on a connection, and the limits that follow from it.

use std::cell::{Cell, RefCell};

use lacquer_h2::frame::FrameHeader;
use lacquer_h2::rules::{Admit, RapidReset, Rules};
use lacquer_h2::stream::State;
use lacquer_h2::{Fault, Note};
use lacquer_params::Params;
use lacquer_vcl_runtime::H2Setting;

/// The number of streams whose resets are remembered.
const RECENT: usize = 16;

/// The last streams that this side has reset; 0 where there is none.
#[derive(Default)]
struct RecentResets {
    streams: [u32; RECENT],
    next: usize,
}

/// The client's behavior so far, which decides how its next frames are treated.
pub struct Conduct {
    rules: RefCell<Rules>,
    resets: RefCell<RapidReset>,
    recent: RefCell<RecentResets>,
    /// A GOAWAY was sent or received.
    has_goaway: Cell<bool>,
    /// The client knows that the connection will end soon.
    is_leaving: Cell<bool>,
}

impl Conduct {
    /// Returns the conduct of a new connection, with `max_open` streams at a time.
    pub fn new(params: &Params, max_open: u32, now: f64) -> Conduct {
        let resets = RapidReset::new(
            params.h2_rapid_reset,
            u64::from(params.h2_rapid_reset_limit),
            params.h2_rapid_reset_period,
            now,
        );
        Conduct {
            rules: RefCell::new(Rules::new(max_open)),
            resets: RefCell::new(resets),
            recent: RefCell::default(),
            has_goaway: Cell::new(false),
            is_leaving: Cell::new(false),
        }
    }

    // Streams.

    /// Decides whether a frame is allowed on its stream. A HEADERS frame may open the stream.
    pub fn admit(
        &self,
        header: &mut FrameHeader,
        state: Option<State>,
        log: &mut dyn FnMut(Note),
    ) -> Result<Admit, Fault> {
        self.rules.borrow_mut().admit(header, state, log)
    }

    /// Counts the stream of a request that was received with the upgrade from HTTP/1.
    pub fn open_upgraded(&self) {
        self.rules.borrow_mut().open_upgraded();
    }

    /// Counts the end of an open stream.
    pub fn close_one(&self) {
        self.rules.borrow_mut().close_one();
    }

    /// Returns the number of open streams.
    pub fn open(&self) -> u32 {
        self.rules.borrow().open
    }

    /// Returns the highest stream that the client has opened; 0 if there is none.
    pub fn highest(&self) -> u32 {
        self.rules.borrow().highest
    }

    // Resets.

    /// Counts a reset of a stream that was opened at `opened`. Returns whether the reset is a rapid one, or fails if
    /// the client has made too many of them.
    pub fn count_reset(&self, now: f64, opened: f64) -> Result<bool, Fault> {
        self.resets.borrow_mut().reset(now, opened)
    }

    /// Records that this side has reset a stream.
    pub fn record_reset(&self, stream: u32) {
        let mut recent = self.recent.borrow_mut();
        let at = recent.next % RECENT;
        recent.streams[at] = stream;
        recent.next = at + 1;
    }

    /// Returns whether this stream is one of the last that this side has reset.
    pub fn was_reset(&self, stream: u32) -> bool {
        stream != 0 && self.recent.borrow().streams.contains(&stream)
    }

    /// Returns a limit on rapid resets, for the VMOD h2.
    pub fn limit(&self, which: H2Setting) -> f64 {
        let resets = self.resets.borrow();
        match which {
            H2Setting::RapidReset => resets.threshold,
            H2Setting::RapidResetLimit => resets.limit,
            H2Setting::RapidResetPeriod => resets.period,
            H2Setting::RapidResetBudget => resets.budget,
        }
    }

    /// Changes a limit on rapid resets of this session. The budget cannot be set.
    pub fn set_limit(&self, which: H2Setting, value: f64, now: f64) {
        let mut resets = self.resets.borrow_mut();
        match which {
            H2Setting::RapidReset => resets.threshold = value,
            H2Setting::RapidResetLimit => resets.limit = value,
            H2Setting::RapidResetPeriod => resets.period = value,
            H2Setting::RapidResetBudget => return,
        }
        resets.restart(now);
    }

    // The end.

    /// Returns whether a GOAWAY was sent or received.
    pub fn has_goaway(&self) -> bool {
        self.has_goaway.get()
    }

    /// Records that the client has sent a GOAWAY.
    pub fn record_goaway(&self) {
        self.has_goaway.set(true);
    }

    /// Records that the client is told about the coming end. Returns whether it was told before.
    pub fn begin_leaving(&self) -> bool {
        self.is_leaving.replace(true)
    }
}
