//! Multipart responses: several ranges of a body, each in its own part.

use lacquer_http::multipart::Multipart;

use crate::pipeline::BodyPipeline;
use crate::sink::{Behind, SendError, Sink};
use crate::source::Source;
use crate::stored::send_stored;

/// Sends the parts of a body, each preceded by its head.
pub async fn send_parts<S: Sink>(
    source: &Source,
    parts: &Multipart,
    pipeline: &mut BodyPipeline<S>,
) -> Result<(), SendError> {
    for (number, &(low, high)) in parts.ranges().iter().enumerate() {
        pipeline.write(&parts.part_head(number)).await?;
        match source {
            Source::Object(object) => send_stored(pipeline, object, low, high + 1, Behind::More).await?,
            Source::Bytes(bytes) => {
                let part = usize::try_from(low).ok().zip(usize::try_from(high).ok());
                let part = part.and_then(|(low, high)| bytes.get(low..=high));
                pipeline.write(part.ok_or(SendError::Source)?).await?;
            }
        }
    }
    pipeline.write(&parts.end()).await
}
