//! Who sits with whom: places sorted by their hashes, cut into chunks, and what each
//! sees there.
//!
//! All of it is whole numbers on the host. Sorting would bring them there anyway, on most
//! backends.

use burn::tensor::Tensor;
use zoo_spec::Lsh;

use super::hashing::Hashing;
use super::sight::Sight;

/// The places of every head on their seats, in every round.
pub(super) struct Seating {
    pub(super) chunks: Chunks,
    pub(super) rounds: Vec<Round>,
}

/// What the places of a head are cut into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    pub(super) count: usize,
    /// Seats in each, and so many queries.
    pub(super) seats: usize,
}

impl Chunks {
    /// Keys that are seen from one: its own and those of the one before, or its own alone
    /// where there is no other.
    pub(super) fn keys(self) -> usize {
        match self.count {
            1 => self.seats,
            _ => 2 * self.seats,
        }
    }

    /// The one before, the last one before the first.
    fn before(self, chunk: usize) -> usize {
        (chunk + self.count - 1) % self.count
    }

    /// Seats of a head.
    fn all_seats(self) -> usize {
        self.count * self.seats
    }
}

/// One round, for all examples and heads. Rows are those of `[batch, heads, seq]`.
pub(super) struct Round {
    /// `[batch, heads, chunks, seats]`: the row on each seat; any, where nobody sits.
    pub(super) rows: Vec<i32>,
    /// `[batch, heads, seq]`: the seat of each row, counted over all of them.
    pub(super) seat_of: Vec<i32>,
    /// `[batch, heads, chunks, seats, keys]`
    pub(super) hidden: Vec<bool>,
}

impl Seating {
    /// The rows of the keys that the query of a row sees, in any round.
    pub(super) fn seen_by(&self, row: usize) -> Vec<usize> {
        let Chunks { seats, .. } = self.chunks;
        let (all, keys) = (self.chunks.all_seats(), self.chunks.keys());
        let mut seen = Vec::new();
        for round in &self.rounds {
            let seat = round.seat_of[row] as usize;
            let (first, chunk) = (seat / all * all, seat % all / seats);
            let own = first + chunk * seats..first + (chunk + 1) * seats;
            let before = first + self.chunks.before(chunk) * seats;
            let before = before..before + keys - seats;
            let hidden = &round.hidden[seat * keys..][..keys];
            for (seat, _) in before
                .chain(own)
                .zip(hidden)
                .filter(|(_, hidden)| !**hidden)
            {
                seen.push(round.rows[seat] as usize);
            }
        }
        seen
    }

    pub(super) fn of(hashing: &Lsh, query: &Tensor<4>, sight: &Sight<'_>) -> Self {
        let [batch, heads, _, seq] = sight.shape.scores();
        // Two chunks see all of each other: there is nothing to sort.
        if seq <= hashing.bucket.saturating_mul(2) {
            let chunks = Chunks {
                count: 1,
                seats: seq,
            };
            let mut all = Self::empty(chunks, 1, batch * heads);
            all.fill(sight, |_, _, _| 0);
            return all;
        }
        let chunks = Chunks {
            count: seq.div_ceil(hashing.bucket),
            seats: hashing.bucket,
        };
        let mut seating = Self::empty(chunks, hashing.rounds, batch * heads);
        let hashes = hashing.hashes(query);
        seating.fill(sight, |head, round, place| {
            hashes[(head * seq + place) * hashing.rounds + round]
        });
        seating
    }

    fn empty(chunks: Chunks, rounds: usize, heads: usize) -> Self {
        let round = || Round {
            rows: Vec::new(),
            seat_of: Vec::new(),
            hidden: vec![true; heads * chunks.all_seats() * chunks.keys()],
        };
        Self {
            chunks,
            rounds: (0..rounds).map(|_| round()).collect(),
        }
    }

    /// Seats everybody by `hash`, told head, round and place.
    fn fill(&mut self, sight: &Sight<'_>, hash: impl Fn(usize, usize, usize) -> u32) {
        let [batch, heads, _, seq] = sight.shape.scores();
        let (seats, keys) = (self.chunks.seats, self.chunks.keys());
        let all_seats = self.chunks.all_seats();
        for head in 0..batch * heads {
            let orders: Vec<Order> = (0..self.rounds.len())
                .map(|round| Order::by(|place| hash(head, round, place), seq, self.chunks))
                .collect();
            let mut sees_another = vec![false; seq];
            for (at, order) in orders.iter().enumerate() {
                let hidden = &mut self.rounds[at].hidden;
                let hidden = &mut hidden[head * all_seats * keys..][..all_seats * keys];
                let look = Look {
                    sight,
                    head: [head / heads, head % heads],
                    order,
                    before: &orders[..at],
                };
                for (chunk, hidden) in hidden.chunks_exact_mut(seats * keys).enumerate() {
                    look.from(chunk, hidden, &mut sees_another);
                }
            }
            // Who sees nobody else, in any round, sees itself where it sits in the first.
            for place in (0..seq).filter(|&place| !sees_another[place]) {
                let seat = orders[0].seat_of[place] as usize;
                let own_key = keys - seats + seat % seats;
                let at = (head * all_seats + seat) * keys + own_key;
                let own = std::slice::from_mut(&mut self.rounds[0].hidden[at]);
                own[0] = false;
                sight.hide(
                    [head / heads, head % heads],
                    place as u32,
                    &[place as u32],
                    own,
                );
            }
            for (round, order) in self.rounds.iter_mut().zip(&orders) {
                let row = |&place: &u32| match place {
                    NOBODY => (head * seq) as i32,
                    place => (head * seq) as i32 + place as i32,
                };
                round.rows.extend(order.places.iter().map(row));
                let seat = |&seat: &u32| (head * all_seats) as i32 + seat as i32;
                round.seat_of.extend(order.seat_of.iter().map(seat));
            }
        }
    }
}

/// On a seat that is left over. Greater than every place.
const NOBODY: u32 = u32::MAX;

/// The places of one head in one round.
struct Order {
    /// Who sits on each seat.
    places: Vec<u32>,
    /// Where each place sits.
    seat_of: Vec<u32>,
    /// In which chunk.
    chunk_of: Vec<u32>,
    chunks: Chunks,
}

impl Order {
    /// Sorted by hash, and among equals by place.
    fn by(hash: impl Fn(usize) -> u32, seq: usize, chunks: Chunks) -> Self {
        let mut sorted: Vec<(u32, u32)> = (0..seq).map(|at| (hash(at), at as u32)).collect();
        sorted.sort_unstable();
        let mut places: Vec<u32> = sorted.into_iter().map(|(_, place)| place).collect();
        let (mut seat_of, mut chunk_of) = (vec![0; seq], vec![0; seq]);
        for (seat, &place) in places.iter().enumerate() {
            seat_of[place as usize] = seat as u32;
            chunk_of[place as usize] = (seat / chunks.seats) as u32;
        }
        places.resize(chunks.all_seats(), NOBODY);
        Self {
            places,
            seat_of,
            chunk_of,
            chunks,
        }
    }

    fn in_chunk(&self, chunk: usize) -> &[u32] {
        &self.places[chunk * self.chunks.seats..][..self.chunks.seats]
    }

    /// The places that are seen from a chunk: of the one before, and its own.
    fn seen_from(&self, chunk: usize) -> Vec<u32> {
        let before: &[u32] = match self.chunks.count {
            1 => &[],
            _ => self.in_chunk(self.chunks.before(chunk)),
        };
        [before, self.in_chunk(chunk)].concat()
    }
}

/// What is seen in one round, by one head.
struct Look<'a> {
    sight: &'a Sight<'a>,
    head: [usize; 2],
    order: &'a Order,
    before: &'a [Order],
}

impl Look<'_> {
    /// Writes what is hidden from each seat of a chunk, `[seats, keys]`, and who sees
    /// anybody but itself.
    fn from(&self, chunk: usize, hidden: &mut [bool], sees_another: &mut [bool]) {
        let keys = self.order.seen_from(chunk);
        // In which chunks these keys were, side by side: every query goes through them.
        let were_in: Vec<Vec<u32>> = self
            .before
            .iter()
            .map(|order| {
                let chunk_of = |&key: &u32| order.chunk_of.get(key as usize).copied();
                let chunks = keys.iter().map(chunk_of);
                chunks.map(|chunk| chunk.unwrap_or(NOBODY)).collect()
            })
            .collect();
        let rows = hidden.chunks_exact_mut(keys.len());
        for (&query, hidden) in self.order.in_chunk(chunk).iter().zip(rows) {
            if query == NOBODY {
                continue;
            }
            for (hidden, &key) in hidden.iter_mut().zip(&keys) {
                *hidden = (key == NOBODY) | (key == query);
            }
            // A key that was seen before is not counted again.
            for (order, were_in) in self.before.iter().zip(&were_in) {
                let own = order.chunk_of[query as usize];
                let before = order.chunks.before(own as usize) as u32;
                for (hidden, &chunk) in hidden.iter_mut().zip(were_in) {
                    *hidden |= (chunk == own) | (chunk == before);
                }
            }
            self.sight.hide(self.head, query, &keys, hidden);
            sees_another[query as usize] |= hidden.iter().any(|hidden| !hidden);
        }
    }
}
