//! Which datagrams go out with one call of the kernel, and how.
//!
//! A call takes several messages. The kernel cuts each into datagrams of one size (`UDP_SEGMENT`),
//! of which only the last may be shorter, and such a message costs it little more than one
//! datagram does. So datagrams that have one size share messages, because they happen to or
//! because they are filled up to it with blank lines; all others get a message each. Pure but for
//! the call itself.

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, sendmmsg};
use std::io::{self, IoSlice};
use std::os::fd::RawFd;

/// Whether the kernel cuts messages into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutting {
    /// It does not.
    No,
    /// Those that have one size.
    Equal,
    /// Those that have, or are filled up to, this size.
    Filled(usize),
}

/// Datagrams for one call.
#[derive(Debug)]
pub(super) struct Call<'p> {
    slices: Vec<IoSlice<'p>>,
    messages: Vec<Message>,
    /// The size of the datagrams that share a message.
    segment: Option<u16>,
}

/// What of a call becomes one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Message {
    slices: usize,
    /// Of the payload, with the LF behind each packet.
    bytes: usize,
}

impl<'p> Call<'p> {
    /// As many of the first packets as one call takes, in as few messages as may be.
    pub(super) fn of(packets: &[&'p [u8]], cutting: Cutting) -> Self {
        let train = train(packets, cutting);
        if train.packets >= TRAIN_MIN {
            return Self::of_train(packets, train);
        }
        let is_train = |at: &usize| {
            let rest = packets.get(*at..).unwrap_or_default();
            self::train(rest, cutting).packets >= TRAIN_MIN
        };
        let singles = (1..packets.len()).find(is_train).unwrap_or(packets.len());
        let mut call = Self { slices: Vec::new(), messages: Vec::new(), segment: None };
        for packet in packets.iter().take(singles) {
            call.messages.push(Message::default());
            call.add(packet, packet.len());
        }
        call
    }

    fn of_train(packets: &[&'p [u8]], Train { packets: count, size }: Train) -> Self {
        let segment = u16::try_from(size).ok();
        let mut call = Self { slices: Vec::new(), messages: Vec::new(), segment };
        let most = (MESSAGE_MAX / size.max(1)).clamp(1, SEGMENTS_MAX);
        for (at, packet) in packets.iter().take(count).enumerate() {
            if at % most == 0 {
                call.messages.push(Message::default());
            }
            // The last datagram of a message may be shorter.
            let is_last = (at + 1) % most == 0 || at + 1 == count;
            call.add(packet, if is_last { packet.len() } else { size });
        }
        call
    }

    /// Adds a datagram of this size to the last message.
    fn add(&mut self, packet: &'p [u8], size: usize) {
        let filling = BLANK.get(..size.saturating_sub(packet.len())).unwrap_or_default();
        let slices = [packet, filling].into_iter().take(1 + usize::from(!filling.is_empty()));
        if let Some(message) = self.messages.last_mut() {
            message.slices += slices.len();
            message.bytes += packet.len() + 1;
        }
        self.slices.extend(slices.map(IoSlice::new));
    }

    /// How many messages it has.
    pub(super) const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether the kernel is to cut messages.
    pub(super) const fn is_cut(&self) -> bool {
        self.segment.is_some()
    }

    /// How many bytes of the payload the first messages take up, with the LF behind each packet.
    pub(super) fn bytes(&self, messages: usize) -> usize {
        self.messages.iter().take(messages).map(|message| message.bytes).sum()
    }

    /// Makes the call; answers how many messages the kernel took, at least one. When that is not
    /// all of them, it has met an error at the next one, and has forgotten which.
    pub(super) fn make(&self, socket: RawFd) -> io::Result<usize> {
        let control = self.segment.as_ref().map(ControlMessage::UdpGsoSegments);
        let space = control.is_some().then(|| cmsg_space!(u16));
        let mut headers = MultiHeaders::<()>::preallocate(self.len(), space);
        let nowhere_else = vec![None; self.len()];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let (messages, control) = (self.by_message(), control.as_slice());
        let taken = sendmmsg(socket, &mut headers, &messages, nowhere_else, control, flags)?;
        Ok(taken.count())
    }

    fn by_message(&self) -> Vec<&[IoSlice<'p>]> {
        let mut rest = &*self.slices;
        let mut next = |message: &Message| {
            let (slices, left) = rest.split_at_checked(message.slices)?;
            rest = left;
            Some(slices)
        };
        self.messages.iter().map_while(&mut next).collect()
    }
}

/// The first packets, if they can share messages whose datagrams have that size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Train {
    packets: usize,
    size: usize,
}

fn train(packets: &[&[u8]], cutting: Cutting) -> Train {
    let Some(first) = packets.first() else { return Train::default() };
    let count = |fits: &dyn Fn(usize) -> bool| {
        packets.iter().take_while(|packet| fits(packet.len())).count()
    };
    match cutting {
        Cutting::No => Train::default(),
        Cutting::Filled(size) => {
            let fits = |length: usize| length <= size && size - length <= BLANK.len();
            Train { packets: count(&fits), size }
        }
        Cutting::Equal => {
            let size = first.len();
            let alike = count(&|length| length == size);
            let last = packets.get(alike).filter(|packet| packet.len() < size);
            Train { packets: alike + usize::from(last.is_some()), size }
        }
    }
}

/// Blank lines; most datagrams lack less than a line.
static BLANK: [u8; 1024] = [b'\n'; 1024];

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

    /// Packets of these sizes, and the datagrams of the first call by their messages.
    #[track_caller]
    fn check(sizes: &[usize], cutting: Cutting, messages: &[usize], segment: Option<u16>) {
        let packets: Vec<Vec<u8>> = sizes.iter().map(|size| vec![b'a'; *size]).collect();
        let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        let call = Call::of(&packets, cutting);
        let length = |message: &&[IoSlice<'_>]| message.iter().map(|slice| slice.len()).sum();
        let lengths: Vec<usize> = call.by_message().iter().map(length).collect();
        let datagrams = |length: &usize| match segment {
            Some(size) => length.div_ceil(size.into()),
            None => 1,
        };
        let cut: Vec<_> = lengths.iter().map(datagrams).collect();
        assert_eq!((&*cut, call.segment), (messages, segment), "{sizes:?}");
        let count = messages.iter().sum();
        let bytes = sizes.iter().take(count).map(|size| size + 1).sum::<usize>();
        assert_eq!(call.bytes(call.len()), bytes);
    }

    #[test]
    fn packets_of_one_size_share_messages() {
        let check = |sizes: &[usize], messages: &[usize], segment| {
            check(sizes, Cutting::Equal, messages, segment);
        };
        check(&[], &[], None);
        check(&[9], &[1], None);
        check(&[9, 9, 9], &[1, 1, 1], None);
        check(&[9, 9, 9, 9], &[4], Some(9));
        check(&[9, 9, 9, 3], &[4], Some(9));
        check(&[9, 9, 9, 9, 3, 3], &[5], Some(9));
        // A longer one fits in no message of shorter ones.
        check(&[9, 9, 9, 9, 10, 9], &[4], Some(9));
        check(&[8, 7, 9, 9, 9, 9], &[1, 1], None);
        check(&[8, 7, 6, 5, 4], &[1; 5], None);
    }

    #[test]
    fn filled_packets_are_of_one_size() {
        check(&[9, 7, 8, 9, 5], Cutting::Filled(9), &[5], Some(9));
        check(&[9, 7, 8], Cutting::Filled(9), &[1, 1, 1], None);
        // What is too long for one goes alone, and so does what would be nearly blank.
        check(&[9, 7, 8, 9, 10, 9, 9, 9, 9], Cutting::Filled(9), &[4], Some(9));
        check(&[10, 9, 7, 8, 9], Cutting::Filled(9), &[1], None);
        check(&[9; 8], Cutting::Filled(2000), &[1; 8], None);
        check(&[1400; 64], Cutting::Filled(1432), &[45, 19], Some(1432));
    }

    #[test]
    fn a_message_has_no_more_than_udp_and_the_kernel_take() {
        check(&[1432; 64], Cutting::Equal, &[45, 19], Some(1432));
        check(&[40_000; 4], Cutting::Equal, &[1, 1, 1, 1], Some(40_000));
        check(&[2; 130], Cutting::Equal, &[64, 64, 2], Some(2));
        check(&[70_000; 4], Cutting::Equal, &[1, 1, 1, 1], None);
    }

    #[test]
    fn nothing_is_cut_where_nobody_cuts() {
        check(&[9, 9, 9, 9], Cutting::No, &[1, 1, 1, 1], None);
    }

    /// What the kernel makes of a call are the packets, and blank lines behind some of them.
    #[test]
    fn packets_arrive_as_they_were() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        for cutting in [Cutting::No, Cutting::Equal, Cutting::Filled(6)] {
            for sizes in [&[5, 4, 6][..], &[5, 5, 5, 5, 2], &[3; 60]] {
                let text: Vec<u8> = (b'0'..=b'z').collect();
                let packets: Vec<&[u8]> = sizes.iter().map(|size| &text[..*size]).collect();
                let call = Call::of(&packets, cutting);
                assert_eq!(call.make(client.as_raw_fd()).unwrap(), call.len());
                for packet in packets {
                    let mut buffer = [0; 100];
                    let length = server.recv(&mut buffer).unwrap();
                    let blank = cutting == Cutting::Filled(6) && sizes.len() > 3;
                    assert!(length == packet.len() || (blank && length == 6));
                    assert_eq!(buffer[..length].trim_ascii_end(), packet);
                }
            }
        }
    }
}
