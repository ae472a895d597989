//! A queue of encoded requests, bounded in bytes. A full queue drops its oldest request: parent spans end
//! after their children, so the newest requests hold the parents.

use std::collections::VecDeque;

/// A request as it goes over the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedRequest {
    /// ExportTraceServiceRequest or ExportMetricsServiceRequest as protobuf, shorter than
    /// [`REQUEST_MAX_BYTES`].
    pub body: Vec<u8>,
    /// How many spans or data points are in it.
    pub items: u64,
}

/// Receivers accept requests of up to 4 MiB by default.
pub const REQUEST_MAX_BYTES: usize = 3 << 20 | 1 << 19;
/// The most bytes of a queue, of spans and of data points.
pub const SPANS_MAX_BYTES: usize = 24 << 20;
pub const POINTS_MAX_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<EncodedRequest>,
    bytes: usize,
    items: u64,
    max_bytes: usize,
}

impl Queue {
    pub fn new(max_bytes: usize) -> Queue {
        Queue { waiting: VecDeque::new(), bytes: 0, items: 0, max_bytes }
    }

    /// Appends a request. Returns how many items were dropped for it.
    pub fn push(&mut self, mut request: EncodedRequest) -> u64 {
        request.body.shrink_to_fit();
        let mut gone = 0;
        while self.bytes + request.body.len() > self.max_bytes
            && let Some(oldest) = self.pop()
        {
            gone += oldest.items;
        }
        self.bytes += request.body.len();
        self.items += request.items;
        self.waiting.push_back(request);
        gone
    }

    pub fn pop(&mut self) -> Option<EncodedRequest> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.body.len();
        self.items -= first.items;
        Some(first)
    }

    /// Whether a request of so many bytes would make the queue drop another.
    pub fn is_full_for(&self, bytes: usize) -> bool {
        !self.waiting.is_empty() && self.bytes + bytes > self.max_bytes
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn items(&self) -> u64 {
        self.items
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(items: u64, bytes: usize) -> EncodedRequest {
        EncodedRequest { body: vec![7; bytes], items }
    }

    #[test]
    fn full_queue_drops_its_oldest_and_counts_them() {
        let mut queue = Queue::new(100);
        assert_eq!(queue.push(request(1, 40)), 0);
        assert_eq!(queue.push(request(2, 40)), 0);
        assert!(queue.is_full_for(21) && !queue.is_full_for(20));
        assert_eq!(queue.push(request(4, 70)), 3, "both must go");
        assert_eq!((queue.items(), queue.bytes()), (4, 70));
        assert_eq!(queue.pop().map(|request| request.items), Some(4));
        assert_eq!((queue.items(), queue.bytes(), queue.is_empty()), (0, 0, true));
    }

    #[test]
    fn request_larger_than_the_queue_is_taken_alone() {
        let mut queue = Queue::new(10);
        assert!(!queue.is_full_for(50), "otherwise a sender would wait for ever");
        assert_eq!(queue.push(request(1, 50)), 0);
        assert_eq!(queue.items(), 1);
    }
}
