//! Decodes the field sections of a request.

use crate::error_table::{Error, Reason};
use crate::qpack::{Begun, Decoder, QpackError, Step};
use lacquer_h2::request::{Limits, RequestBuilder, RequestHead, Version};
use lacquer_h2::{Note, Tag};
use lacquer_http::trailers::RequestTrailers;
use lacquer_http::{Message, Workspace};

type Log<'a> = &'a mut dyn FnMut(Note);

/// The result of decoding a field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    Done(T),
    /// The section refers to fields that have not arrived. The caller keeps the section and decodes it again when
    /// [`Decoder::unblocked`] returns its stream. Nothing was changed.
    Blocked,
}

/// Decodes the field section of a request: clears `msg`, and stores its fields in the workspace. With `end_stream`, the
/// stream is known to end with the section. An error of the stream, after which the caller resets it and calls
/// [`Decoder::cancel`], leaves the message incomplete.
pub fn decode(
    decoder: &mut Decoder,
    stream: u64,
    section: &[u8],
    (ws, msg): (&mut Workspace, &mut Message),
    limits: &Limits,
    end_stream: bool,
    log: Log<'_>,
) -> Result<Decoded<RequestHead>, Error> {
    let build =
        |ws: &mut Workspace, msg: &mut Message| RequestBuilder::begin(Version::Http3, ws, msg, limits);
    match fields(decoder, stream, section, (ws, msg), build, log)? {
        Some(builder) => Ok(Decoded::Done(builder.finish(ws, msg, end_stream, log)?)),
        None => Ok(Decoded::Blocked),
    }
}

/// Decodes the field section of trailers. Returns the fields that may be passed on.
pub fn decode_trailers(
    decoder: &mut Decoder,
    stream: u64,
    section: &[u8],
    limits: &Limits,
    log: Log<'_>,
) -> Result<Decoded<Box<RequestTrailers>>, Error> {
    let nowhere = (&mut Workspace::new(0), &mut Message::new(0));
    let build = |_: &mut Workspace, _: &mut Message| RequestBuilder::trailers(Version::Http3, limits);
    match fields(decoder, stream, section, nowhere, build, log)? {
        Some(builder) => Ok(Decoded::Done(builder.finish_trailers()?)),
        None => Ok(Decoded::Blocked),
    }
}

/// Decodes all fields, up to the first error of the stream. Returns `None` if the section is blocked.
fn fields(
    decoder: &mut Decoder,
    stream: u64,
    section: &[u8],
    (ws, msg): (&mut Workspace, &mut Message),
    build: impl FnOnce(&mut Workspace, &mut Message) -> RequestBuilder,
    log: Log<'_>,
) -> Result<Option<RequestBuilder>, Error> {
    let begun = decoder.begin(stream, section).map_err(|error| damaged(error, log))?;
    let Begun::Section(mut section) = begun else { return Ok(None) };
    let mut builder = build(ws, msg);
    loop {
        let out = builder.field_buffer(ws);
        match decoder.next(&mut section, out).map_err(|error| damaged(error, log))? {
            // Unlike in HTTP/2, the rest of the section is not needed to decode others.
            Step::Field(line) => builder
                .add(line, ws, msg, log)
                .map_err(|too_large| Error::Stream(Error::from(too_large).reason()))?,
            Step::Full => builder.overflow(decoder.field_size_bound(&section)),
            Step::End => break,
        }
        if builder.error().is_some() {
            // The caller cancels the stream, so the rest has no effect on the tables.
            return Ok(Some(builder));
        }
    }
    decoder.finish(stream, &section);
    Ok(Some(builder))
}

#[cold]
fn damaged(error: QpackError, log: Log<'_>) -> Error {
    log(Note::new(Tag::SessBogoHeader, format!("QPACK compression error ({})", error.text())));
    Error::Connection(Reason::DecompressionFailed)
}
