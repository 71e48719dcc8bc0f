//! The spans of traced transactions: their numbers, their log records, and the headers by which an origin continues the
//! trace. The process of the admin listener makes spans for OpenTelemetry from the records (`admin/src/otlp`).
//!
//! The records are `Notice`s. `trace: CONTEXT PARENT` follows the `Begin` of a transaction: its span as a value of
//! `traceparent`, and the number of the span above it, or `-`. `trace: SUBROUTINE BEGIN SECONDS` is the time that VCL took.
//! `trace: https` says that the connection to the origin has TLS, which no other record does.

use lacquer_http::trace_context::{TRACEPARENT, TRACESTATE, TraceContext};
use lacquer_params::Params;
use lacquer_shm::{Tag, TxLog};
use lacquer_sources::{clock, random};

use crate::logged::Logged;

/// The span of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// `None` if the transaction is not traced.
    context: Option<TraceContext>,
    /// The number of the span above it; 0 if there is none.
    parent: u64,
    /// The time at which the VCL subroutine began.
    began: f64,
}

impl Span {
    /// Decides whether a request is traced, and returns its span. A restarted or included request continues the trace of
    /// the request that it belongs to, whose span is `above`. `client` is the context that the client has sent.
    pub fn of_request(
        above: Span,
        client: Option<TraceContext>,
        is_included: bool,
        params: &Params,
    ) -> Option<Span> {
        match (above.context, client) {
            (Some(above), _) => Some(Span::below(above)),
            (None, client) if is_included || !is_sampled(params, client) => None,
            (None, Some(client)) => Some(Span::below(client)),
            (None, None) => Some(Span::first()),
        }
    }

    /// Returns a span of a fetch or a pipe of the request with this span.
    #[cold]
    pub fn of_exchange(request: Span) -> Option<Span> {
        request.context.map(Span::below)
    }

    /// Returns the span of another attempt, beside this one.
    #[cold]
    pub fn beside(self) -> Option<Span> {
        let context = self.context?.with_span(random::bits64());
        Some(Span { context: Some(context), ..self })
    }

    fn below(parent: TraceContext) -> Span {
        let context = parent.with_span(random::bits64()).with_sampled(true);
        Span { context: Some(context), parent: parent.span(), began: 0.0 }
    }

    fn first() -> Span {
        let trace = u128::from(random::bits64()) << 64 | u128::from(random::bits64());
        Span { context: Some(TraceContext::new(trace, random::bits64(), true)), parent: 0, began: 0.0 }
    }

    /// Logs the beginning of the span.
    pub fn log(&self, log: &mut TxLog) {
        let Some(context) = self.context else { return };
        if self.parent == 0 {
            log.put_fmt(Tag::Notice, format_args!("trace: {context} -"));
        } else {
            log.put_fmt(Tag::Notice, format_args!("trace: {context} {:016x}", self.parent));
        }
    }

    /// Sets the headers of a request to an origin. The state of a trace that is not continued is removed.
    #[cold]
    pub fn pass_on(&self, headers: &mut Logged<'_>) {
        let Some(context) = self.context else { return };
        let before = TraceContext::of(headers.message, headers.ws);
        headers.unset(TRACEPARENT);
        headers.add(TRACEPARENT, context.to_string().as_bytes());
        if before.is_none_or(|before| before.trace() != context.trace()) {
            headers.unset(TRACESTATE);
        }
    }

    #[cold]
    pub fn begin_subroutine(&mut self) {
        self.began = clock::real();
    }

    /// Logs the time of the subroutine that has ended.
    pub fn end_subroutine(&self, name: &str, log: &mut TxLog) {
        let (began, seconds) = (self.began, (clock::real() - self.began).max(0.0));
        log.put_fmt(Tag::Notice, format_args!("trace: {name} {began:.6} {seconds:.6}"));
    }
}

/// Logs that the connection of a traced fetch or pipe has TLS.
#[cold]
pub fn log_tls(log: &mut TxLog) {
    log.put(Tag::Notice, b"trace: https");
}

/// Returns whether a request is traced, by the parameters and the decision of its client.
fn is_sampled(params: &Params, client: Option<TraceContext>) -> bool {
    match client {
        Some(client) if params.trace_follow => client.is_sampled(),
        // 53 bits are what a number of this type has.
        _ => ((random::bits64() >> 11) as f64) < params.trace_rate * (1u64 << 53) as f64,
    }
}
