//! Messages in the encoding of Protocol Buffers, which are written field by field.

// The encodings of values.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// A message that is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message(Vec<u8>);

impl Message {
    /// Appends a number without a key, as packed lists contain it.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, encoding: u32) {
        self.number((field << 3 | encoding).into());
    }

    pub fn unsigned(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.number(value);
    }

    /// Adds a number of type `sint32` or `sint64`.
    pub fn signed(&mut self, field: u32, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    pub fn float(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Adds a packed list of numbers of type `fixed64` or `double`.
    pub fn all_fixed64(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let packed: Vec<u8> = values.flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &packed);
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, BYTES);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    pub fn message(&mut self, field: u32, value: &Message) {
        self.bytes(field, &value.0);
    }

    /// Appends fields that are encoded already.
    pub fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends the message behind its length.
    pub fn write_delimited(&self, out: &mut Vec<u8>) {
        let mut length = Message::default();
        length.number(self.0.len() as u64);
        out.extend_from_slice(&length.0);
        out.extend_from_slice(&self.0);
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_encoded_as_protocol_buffers_are() {
        let mut message = Message::default();
        message.unsigned(1, 150);
        message.signed(5, -2);
        message.text(2, "testing");
        message.fixed32(16, 1);
        message.all_fixed64(6, [1, 2].into_iter());
        let fixed = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let expected =
            [&b"\x08\x96\x01\x28\x03\x12\x07testing\x85\x01\x01\0\0\0\x32\x10"[..], &fixed].concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
