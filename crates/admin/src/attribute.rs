//! The attributes of OpenTelemetry: `opentelemetry.proto.common.v1.KeyValue`.

use crate::protobuf::Message;

/// Returns an attribute whose value is a text.
pub fn text(name: &str, text: &str) -> Message {
    let mut value = Message::default();
    value.text(1, text);
    key_value(name, &value)
}

/// Returns an attribute whose value is a number.
pub fn number(name: &str, number: u64) -> Message {
    let mut value = Message::default();
    value.unsigned(3, number);
    key_value(name, &value)
}

fn key_value(name: &str, value: &Message) -> Message {
    let mut pair = Message::default();
    pair.text(1, name);
    pair.message(2, value);
    pair
}
