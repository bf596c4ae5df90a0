//! Which datagrams go out with one call of the kernel, and how.
//!
//! A call takes several messages. The kernel cuts each into datagrams of one size (`UDP_SEGMENT`),
//! of which only the last may be shorter, and such a message costs it little more than one
//! datagram does. So datagrams that happen to have one size share messages, and all others get a
//! message each. Pure but for the call itself.

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, sendmmsg};
use std::io::{self, IoSlice};
use std::os::fd::RawFd;

/// Datagrams for one call.
#[derive(Debug)]
pub(super) struct Call<'p> {
    datagrams: Vec<IoSlice<'p>>,
    /// How many datagrams each message has.
    messages: Vec<usize>,
    /// The size of those that share a message.
    segment: Option<u16>,
}

impl<'p> Call<'p> {
    /// As many of the first packets as one call takes, in as few messages as may be; one packet a
    /// message where the kernel does not cut.
    pub(super) fn of(packets: &[&'p [u8]], cuts: bool) -> Self {
        let train = if cuts { train(packets) } else { 0 };
        if train < TRAIN_MIN {
            let singles = (1..packets.len())
                .find(|at| cuts && train_of_any(packets.get(*at..)))
                .unwrap_or(packets.len());
            return Self::new(packets, vec![1; singles], None);
        }
        let size = packets.first().map_or(0, |packet| packet.len());
        let most = (MESSAGE_MAX / size.max(1)).clamp(1, SEGMENTS_MAX);
        let mut messages = vec![most; train / most];
        messages.extend(Some(train % most).filter(|rest| *rest > 0));
        Self::new(packets, messages, u16::try_from(size).ok())
    }

    fn new(packets: &[&'p [u8]], messages: Vec<usize>, segment: Option<u16>) -> Self {
        let count = messages.iter().sum();
        let datagrams = packets.iter().take(count).map(|packet| IoSlice::new(packet)).collect();
        Self { datagrams, messages, segment }
    }

    /// How many messages it has.
    pub(super) const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether the kernel is to cut messages.
    pub(super) const fn is_cut(&self) -> bool {
        self.segment.is_some()
    }

    /// How many bytes of the payload the first messages take up, with the LF behind each datagram.
    pub(super) fn bytes(&self, messages: usize) -> usize {
        let datagrams = self.messages.iter().take(messages).sum();
        self.datagrams.iter().take(datagrams).map(|datagram| datagram.len() + 1).sum()
    }

    /// Makes the call; answers how many messages the kernel took, at least one. When that is not
    /// all of them, it has met an error at the next one, and has forgotten which.
    pub(super) fn make(&self, socket: RawFd) -> io::Result<usize> {
        let control = self.segment.as_ref().map(ControlMessage::UdpGsoSegments);
        let space = control.is_some().then(|| cmsg_space!(u16));
        let mut headers = MultiHeaders::<()>::preallocate(self.len(), space);
        let nowhere_else = vec![None; self.len()];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let (messages, control) = (self.slices(), control.as_slice());
        let taken = sendmmsg(socket, &mut headers, &messages, nowhere_else, control, flags)?;
        Ok(taken.count())
    }

    fn slices(&self) -> Vec<&[IoSlice<'p>]> {
        let mut rest = &*self.datagrams;
        let mut next = |count: &usize| {
            let (message, left) = rest.split_at_checked(*count)?;
            rest = left;
            Some(message)
        };
        self.messages.iter().map_while(&mut next).collect()
    }
}

/// How many of the first packets are of one size, the last of them perhaps shorter.
fn train(packets: &[&[u8]]) -> usize {
    let Some(size) = packets.first().map(|packet| packet.len()) else { return 0 };
    let alike = packets.iter().take_while(|packet| packet.len() == size).count();
    let last = packets.get(alike).filter(|packet| packet.len() < size);
    alike + usize::from(last.is_some())
}

fn train_of_any(packets: Option<&[&[u8]]>) -> bool {
    packets.is_some_and(|packets| train(packets) >= TRAIN_MIN)
}

/// Fewer are not worth a call of their own.
const TRAIN_MIN: usize = 4;

/// The most bytes that a message of UDP has, over IPv4.
const MESSAGE_MAX: usize = 65_507;

/// The most datagrams that the kernel makes of a message.
const SEGMENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    /// Packets of these sizes, and the messages and the segment's size of the first call.
    #[track_caller]
    fn check(sizes: &[usize], cuts: bool, messages: &[usize], segment: Option<u16>) {
        let packets: Vec<Vec<u8>> = sizes.iter().map(|size| vec![b'a'; *size]).collect();
        let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        let call = Call::of(&packets, cuts);
        assert_eq!((&*call.messages, call.segment), (messages, segment), "{sizes:?}");
        let lengths = call.slices().iter().map(|message| message.len()).collect::<Vec<_>>();
        assert_eq!(lengths, messages);
        let bytes = sizes.iter().take(messages.iter().sum()).map(|size| size + 1).sum::<usize>();
        assert_eq!(call.bytes(call.len()), bytes);
    }

    #[test]
    fn packets_of_one_size_share_messages() {
        check(&[], true, &[], None);
        check(&[9], true, &[1], None);
        check(&[9, 9, 9], true, &[1, 1, 1], None);
        check(&[9, 9, 9, 9], true, &[4], Some(9));
        check(&[9, 9, 9, 3], true, &[4], Some(9));
        check(&[9, 9, 9, 9, 3, 3], true, &[5], Some(9));
        check(&[9, 9, 9, 9], false, &[1, 1, 1, 1], None);
        // A longer one fits in no message of shorter ones.
        check(&[9, 9, 9, 9, 10, 9], true, &[4], Some(9));
        check(&[8, 7, 9, 9, 9, 9], true, &[1, 1], None);
        check(&[8, 7, 6, 5, 4], true, &[1; 5], None);
    }

    #[test]
    fn a_message_has_no_more_than_udp_and_the_kernel_take() {
        check(&[1432; 64], true, &[45, 19], Some(1432));
        check(&[40_000; 4], true, &[1, 1, 1, 1], Some(40_000));
        check(&[2; 130], true, &[64, 64, 2], Some(2));
        check(&[70_000; 4], true, &[1, 1, 1, 1], None);
    }

    /// What the kernel makes of a call are the packets.
    #[test]
    fn packets_arrive_as_they_were() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        for sizes in [&[5, 4, 6][..], &[5, 5, 5, 5, 2], &[3; 70]] {
            let text: Vec<u8> = (b'0'..=b'z').collect();
            let packets: Vec<&[u8]> = sizes.iter().map(|size| &text[..*size]).collect();
            let call = Call::of(&packets, true);
            assert_eq!(call.make(client.as_raw_fd()).unwrap(), call.len());
            for packet in packets {
                let mut buffer = [0; 100];
                let length = server.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], packet);
            }
        }
    }
}
