//! Packets that try every corner of what statsd/statsd understands, the same for the same seed.
//!
//! Every line is one that both sides take, or one that both refuse. What they read differently on
//! purpose is left out: tags, packed values (`1:2|c`), rates above 1, kinds other than `c g ms s`,
//! set members with a colon, and a carriage return after a set, which that server refuses.

/// A source of packets.
pub struct Traffic {
    dice: Dice,
    /// Samples made so far that are meant to be taken.
    pub good: usize,
    /// Lines made so far that are meant to be refused.
    pub bad: usize,
}

impl Traffic {
    pub fn new(seed: u64) -> Traffic {
        Traffic { dice: Dice(seed), good: 0, bad: 0 }
    }

    /// Packets with so many samples between them, or a few more.
    pub fn burst(&mut self, samples: usize) -> Vec<String> {
        let enough = self.good + samples;
        let mut packets = Vec::new();
        while self.good < enough {
            packets.push(self.packet());
        }
        packets
    }

    /// One line, or several; with or without a line feed at the end, now and then a blank line.
    fn packet(&mut self) -> String {
        let mut packet = self.line();
        for _ in 0..self.dice.below(MOST_LINES) {
            packet += if self.dice.hits(20) { "\n\n" } else { "\n" };
            packet += &self.line();
        }
        if self.dice.hits(3) {
            packet.push('\n');
        }
        packet
    }

    fn line(&mut self) -> String {
        if self.dice.hits(50) {
            self.bad += 1;
            return self.dice.one_of(REFUSED).to_owned();
        }
        let mut line = self.name();
        let samples = if self.dice.hits(8) { 2 + self.dice.below(3) } else { 1 };
        for _ in 0..samples {
            line.push(':');
            line += &self.sample();
        }
        self.good += samples;
        if self.dice.hits(30) && !line.ends_with("|s") {
            line.push('\r');
        }
        line
    }

    /// Half of the samples go to a few names, so that windows hold long series and short ones.
    fn name(&mut self) -> String {
        if self.dice.hits(3) {
            return self.dice.one_of(ODD_NAMES).to_owned();
        }
        let names = if self.dice.hits(2) { 4 } else { 200 };
        format!("app{}.requests", self.dice.below(names))
    }

    fn sample(&mut self) -> String {
        match self.dice.below(10) {
            0..4 => format!("{}{}|c{}", self.sign(), self.number(), self.rate()),
            4..7 => format!("{}|ms{}", self.number(), self.rate()),
            7 => format!("{}|g{}", self.number(), self.rate()),
            8 => format!("{}{}|g", self.sign(), self.number()),
            _ => format!("{}|s", self.member()),
        }
    }

    fn sign(&mut self) -> &'static str {
        self.dice.one_of(&["", "+", "-"])
    }

    /// A number in one of its spellings, most of which no double holds exactly.
    fn number(&mut self) -> String {
        let whole = self.dice.below(2000);
        match self.dice.below(7) {
            0 => format!("{whole}"),
            1 => format!("{whole}.{}", self.dice.below(1000)),
            2 => format!(".{}", self.dice.next()),
            3 => format!("{whole}."),
            4 => format!("{whole}e-{}", self.dice.below(5)),
            5 => format!("00{whole}.{}{}", self.dice.next(), self.dice.next()),
            _ => format!("{}.{}E+2", self.dice.below(10), self.dice.below(1_000_000)),
        }
    }

    fn rate(&mut self) -> String {
        if !self.dice.hits(3) {
            return String::new();
        }
        match self.dice.below(5) {
            0 => "|@1".to_owned(),
            1 => "|@.5".to_owned(),
            2 => "|@0.3333333333333333".to_owned(),
            3 => format!("|@0.{}", 1 + self.dice.below(1000)),
            _ => "|@0.1".to_owned(),
        }
    }

    fn member(&mut self) -> String {
        match self.dice.below(4) {
            0 => format!("user{}", self.dice.below(50)),
            1 => format!("{}", self.dice.below(50)),
            2 => format!("{}.0", self.dice.below(50)),
            _ => format!("né {}@x,y;z=#{}", self.dice.below(9), self.dice.below(9)),
        }
    }
}

/// Splitmix64, which is enough of a generator for this, and the same for ever.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// True once in so many throws.
    fn hits(&mut self, once_in: usize) -> bool {
        self.below(once_in) == 0
    }

    fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }
}

/// At 100 bytes a line at the most, a packet of so many stays far below what UDP carries.
const MOST_LINES: usize = 40;

/// Names that the server makes fit, some of them into one another. No-break space included.
const ODD_NAMES: &[&str] = &[
    "glork",
    "gl+ork",
    "gl(ork)",
    "my service/ok",
    "my  service//ok",
    "a\u{a0} b",
    "grün.%",
    "/",
    " lead",
    "trail ",
    "k;a=b",
    "n,k=v",
    "n[k=v]",
    "n#k=v",
    "user@host",
    "Ünïcode.日本",
    "x.y-z_0",
    "\"quoted\\\"",
    "{a}",
    "1",
    "count",
    "a..b",
    ".",
];

const REFUSED: &[&str] = &[
    "bad:x|c",
    "bad:1",
    "bad",
    "bad:-5|ms",
    "bad:|ms",
    "bad:1,5|g",
    "bad:1|c|@x",
    "bad:2|ms|@-0.5",
    "bad:--1|c",
    "bad:NaN|ms",
    "bad:|c",
    ":x|c",
];
