//! The buffers of a connection: received bytes that are not consumed yet, and bytes that wait to be sent. They grow with
//! their data, because a short exchange takes less time than filling large buffers with zeros.

use ureq::unversioned::transport::Buffers;

/// The first size of the input. It doubles whenever it is full.
const MIN_INPUT_BYTES: usize = 4 << 10;
/// The largest size of the input. A response head must fit.
pub(super) const MAX_INPUT_BYTES: usize = 32 << 10;
/// Space that the output gets when it needs more.
pub(super) const OUTPUT_BYTES: usize = 16 << 10;
/// Space for one part of a request. A line of its head must fit, and tokens can be long.
const MIN_PART_BYTES: usize = 8 << 10;

#[derive(Debug, Default)]
pub(super) struct SocketBuffers {
    input: Vec<u8>,
    /// The part of `input` that is not consumed: its start and its end.
    start: usize,
    end: usize,
    /// True if the last call consumed something.
    has_progress: bool,
    output: Vec<u8>,
    /// Number of bytes at the start of `output` that wait to be sent.
    pending: usize,
}

impl SocketBuffers {
    /// The bytes that wait to be sent.
    pub(super) fn pending(&self) -> &[u8] {
        &self.output[..self.pending]
    }

    /// Adds the first `count` bytes of [`Buffers::output`] to those that wait.
    pub(super) fn push_output(&mut self, count: usize) {
        self.pending += count;
    }

    /// Forgets the bytes that waited.
    pub(super) fn clear_pending(&mut self) {
        self.pending = 0;
    }

    /// Makes room after the unconsumed input, up to `max` bytes in all.
    fn make_room(&mut self, max: usize) {
        let is_full = self.end == self.input.len();
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if is_full && self.input.len() < max {
            let size = (self.input.len() * 2).clamp(MIN_INPUT_BYTES, max);
            grow(&mut self.input, size);
        }
    }
}

/// Makes `buffer` longer. Zeroed memory costs less than a resized buffer.
fn grow(buffer: &mut Vec<u8>, size: usize) {
    let mut larger = vec![0; size];
    larger[..buffer.len()].copy_from_slice(buffer);
    *buffer = larger;
}

impl Buffers for SocketBuffers {
    fn output(&mut self) -> &mut [u8] {
        if self.output.len() < self.pending + MIN_PART_BYTES {
            grow(&mut self.output, self.pending + OUTPUT_BYTES);
        }
        &mut self.output[self.pending..]
    }

    fn input(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.make_room(MAX_INPUT_BYTES);
        &mut self.input[self.end..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.end += amount;
    }

    fn input_consume(&mut self, amount: usize) {
        self.has_progress = amount > 0;
        self.start += amount;
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.output();
        // An empty slice would end the body. Only a server that answers before the request is sent fills the input.
        self.make_room(self.end + MIN_INPUT_BYTES);
        (&mut self.input[self.end..], &mut self.output[self.pending..])
    }

    fn can_use_input(&self) -> bool {
        !self.input().is_empty() && self.has_progress
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_INPUT_BYTES, MIN_INPUT_BYTES, SocketBuffers};
    use ureq::unversioned::transport::Buffers;

    fn receive(buffers: &mut SocketBuffers, byte: u8, count: usize) -> usize {
        let free = buffers.input_append_buf();
        let count = count.min(free.len());
        free[..count].fill(byte);
        buffers.input_appended(count);
        count
    }

    #[test]
    fn the_input_grows_with_its_data_up_to_a_limit() {
        let mut buffers = SocketBuffers::default();
        assert_eq!(receive(&mut buffers, b'a', 100), 100);
        assert_eq!(buffers.input.len(), MIN_INPUT_BYTES);
        buffers.input_consume(60);
        assert!(buffers.can_use_input());
        while receive(&mut buffers, b'b', usize::MAX) > 0 {}
        assert_eq!(buffers.input().len(), MAX_INPUT_BYTES);
        assert_eq!(&buffers.input()[39..41], b"ab");
        buffers.input_consume(MAX_INPUT_BYTES);
        assert!(!buffers.can_use_input());
        assert_eq!(receive(&mut buffers, b'c', usize::MAX), MAX_INPUT_BYTES);
        assert!(!buffers.tmp_and_output().0.is_empty());
    }

    #[test]
    fn pieces_of_a_request_wait_in_order() {
        let mut buffers = SocketBuffers::default();
        for piece in [b"head", b"body"] {
            buffers.output()[..4].copy_from_slice(piece);
            buffers.push_output(4);
        }
        assert_eq!(buffers.pending(), b"headbody");
        buffers.clear_pending();
        assert_eq!(buffers.pending(), b"");
    }
}
