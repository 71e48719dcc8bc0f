//! Several ranges of a body, each in a part of its own.

use lacquer_http::multipart::Multipart;

use crate::outlet::Outlet;
use crate::sink::{SendError, Sink};
use crate::source::Source;
use crate::stored::send_stored;

/// Sends the parts of a body, each behind its head.
pub async fn send_parts<S: Sink>(
    source: &Source,
    parts: &Multipart,
    outlet: &mut Outlet<S>,
) -> Result<(), SendError> {
    for (number, &(low, high)) in parts.ranges().iter().enumerate() {
        outlet.write(&parts.part_head(number)).await?;
        match source {
            Source::Object(object) => send_stored(outlet, object, low, high + 1).await?,
            Source::Bytes(bytes) => {
                let part = usize::try_from(low).ok().zip(usize::try_from(high).ok());
                let part = part.and_then(|(low, high)| bytes.get(low..=high));
                outlet.write(part.ok_or(SendError::Source)?).await?;
            }
        }
    }
    outlet.write(&parts.end()).await
}
