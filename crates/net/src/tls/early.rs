//! A handshake whose client has sent data before its end (0-RTT, RFC 8446 section 2.3). The data is passed on, and
//! responses are sealed by rustls, until the handshake is complete and hands over the keys.

use rustls::server::UnbufferedServerConnection;

use super::failure::Failure;
use super::handshake::{Finished, Handshake};
use super::input::Input;
use super::output::{Output, Parts};
use super::traffic::Traffic;

/// A handshake with early data. It is absent once it has ended.
pub struct Early(Option<Handshake<UnbufferedServerConnection>>);

/// The result of [`Early::feed`].
pub enum Fed {
    /// No whole record has arrived.
    Nothing,
    Record,
    Handshaken(Box<Traffic>),
}

const OVER: Failure = Failure::Internal("a handshake that has ended");

impl Early {
    pub fn new(handshake: Handshake<UnbufferedServerConnection>) -> Early {
        Early(Some(handshake))
    }

    /// Returns data that the reader has not taken.
    pub fn untake(&mut self, data: &[u8]) {
        if let Some(handshake) = &mut self.0 {
            handshake.untake_early_data(data);
        }
    }

    /// Moves the data that has arrived to the reader. Returns false if there is none.
    pub fn pass_on(&mut self, input: &mut Input) -> bool {
        let data = self.0.as_mut().map(Handshake::take_early_data).unwrap_or_default();
        input.put_data(&data);
        !data.is_empty()
    }

    /// Handles the next record, if it has arrived whole. The reader must have taken the data before it.
    pub fn feed(&mut self, input: &mut Input, output: &mut Output) -> Result<Fed, Failure> {
        let Some(place) = input.next_record()? else { return Ok(Fed::Nothing) };
        let handshake = self.0.as_mut().ok_or(OVER)?;
        handshake.receive(input.record(place));
        let advanced = handshake.advance();
        output.add_sealed(&handshake.take_output());
        if !advanced? {
            return Ok(Fed::Record);
        }
        let Finished { traffic, early, .. } = self.0.take().ok_or(OVER)?.finish()?;
        input.put_data(&early);
        Ok(Fed::Handshaken(Box::new(traffic)))
    }

    /// Seals data into the output, in one record. Returns the number of sealed bytes; 0 if there is no room.
    pub fn seal(&mut self, parts: &mut Parts<'_>, output: &mut Output) -> Result<usize, Failure> {
        let mut data = vec![0; parts.len().min(output.room())];
        if !data.is_empty() {
            parts.copy_to(&mut data);
            output.add_record(&self.0.as_mut().ok_or(OVER)?.seal(&data)?, data.len());
        }
        Ok(data.len())
    }

    pub fn seal_close(&mut self, output: &mut Output) -> Result<(), Failure> {
        output.add_sealed(&self.0.as_mut().ok_or(OVER)?.seal_close()?);
        Ok(())
    }
}
