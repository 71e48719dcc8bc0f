//! Sends stored bodies, including those that are still being fetched or read from a device.

use lacquer_cache::{BodyState, Object};

use crate::sink::{Behind, SendError, Sink};

/// Sends the bytes of a stored body from `from` to `to`, or to the end of the body if that comes first. `behind` states
/// what follows these bytes.
pub async fn send_stored(
    sink: &mut impl Sink,
    object: &Object,
    from: u64,
    to: u64,
    behind: Behind,
) -> Result<(), SendError> {
    let mut at = from;
    object.delivered(at);
    // Begins with the first byte that a device has.
    let mut delivery = None;
    while at < to {
        if !object.is_ready(at) {
            // Send the gathered bytes before waiting for more.
            sink.flush().await?;
            if delivery.is_none() {
                delivery = object.stored().begin_delivery(at, to);
            }
            sink.wait_for(object, at).await?;
        }
        if let Some(delivery) = &delivery {
            delivery.advance(at);
        }
        let state = object.state();
        if object.body_len() <= at {
            return if state == BodyState::Failed { Err(SendError::Source) } else { Ok(()) };
        }
        at = sink.write_stored(object, at, to, behind).await?;
        object.delivered(at);
    }
    Ok(())
}
