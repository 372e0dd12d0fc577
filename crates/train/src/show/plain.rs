//! A line an interval, for logs and for people without a terminal.

use super::{Interval, Screen};
use crate::Judgement;
use crate::out::print_line;

pub(super) struct Plain;

impl Screen for Plain {
    fn note(&mut self, line: &str) {
        print_line(line);
    }

    fn start(&mut self, _: usize, _: usize) {}

    fn step(&mut self, _: usize) {}

    fn trained(&mut self, _: &Interval, line: &str) {
        print_line(line);
    }

    fn validated(&mut self, _: &Judgement, lines: &[String]) {
        for line in lines {
            print_line(line);
        }
    }

    fn end(&mut self) {}
}
