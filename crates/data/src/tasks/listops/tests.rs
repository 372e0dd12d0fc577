use super::*;

#[test]
fn hand_computed_values() {
    let [max, min, median, sum] = OPERATIONS;
    let list = |operation: Operation, digits: &[u8]| {
        let digits = digits.iter().map(|digit| Expression::Digit(*digit));
        Expression::List(operation, digits.collect())
    };
    for (operation, digits, value) in [
        (max, &[2, 9, 4, 0][..], 9),
        (min, &[3, 8], 3),
        (median, &[9, 1, 5], 5),
        (median, &[1, 4], 2),
        (median, &[8, 0, 5, 2], 3),
        (sum, &[9, 9, 9], 7),
        (sum, &[7, 2, 1], 0),
    ] {
        let list = list(operation, digits);
        assert_eq!(list.value(), value, "{list}");
    }
    let [two, nine] = [2, 9].map(Expression::Digit);
    let nested = Expression::List(max, vec![two, list(min, &[4, 7]), nine]);
    assert_eq!(nested.to_string(), "[MAX 2 [MIN 4 7 ] 9 ]");
    assert_eq!((nested.value(), nested.num_tokens()), (9, 8));
}

/// Value by textual reduction of the innermost brackets, independent of [`Expression`].
fn reduce(text: &str) -> u32 {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    while words.len() > 1 {
        let close = words.iter().position(|word| word == "]").unwrap();
        let mut before = words[..close].iter();
        let open = before.rposition(|word| word.starts_with('[')).unwrap();
        let digits = words[open + 1..close].iter();
        let mut digits: Vec<u32> = digits.map(|word| word.parse().unwrap()).collect();
        digits.sort();
        let last = digits.len() - 1;
        let value = match words[open].as_str() {
            "[MAX" => digits[last],
            "[MIN" => digits[0],
            "[MED" => (digits[last / 2] + digits[last.div_ceil(2)]) / 2,
            "[SM" => digits.iter().sum::<u32>() % 10,
            other => panic!("{other}"),
        };
        words.splice(open..=close, [value.to_string()]);
    }
    words[0].parse().unwrap()
}

#[test]
fn labels_are_the_values() {
    let task = ListOps {
        max_depth: 5,
        max_arguments: 6,
        min_length: 10,
        max_length: 80,
        train_size: 1500,
        valid_size: 100,
        test_size: 0,
    };
    let splits = task.generate(3).unwrap();
    let mut lengths = [0; 81];
    let mut deepest = 0;
    let mut labels = [0; 10];
    for example in splits.train.iter().chain(&splits.valid) {
        let value = reduce(&example.text);
        assert_eq!(example.label, value.to_string(), "{}", example.text);
        labels[value as usize] += 1;
        let (mut depth, mut max_depth) = (0_usize, 0);
        for word in example.text.split(' ') {
            depth = (depth + usize::from(word.starts_with('['))) - usize::from(word == "]");
            max_depth = max_depth.max(depth);
        }
        assert!((1..=5).contains(&max_depth), "{}", example.text);
        deepest = deepest.max(max_depth);
        lengths[example.text.split(' ').count()] += 1;
    }
    assert_eq!(lengths[..10], [0; 10]);
    assert!(lengths[70..].iter().sum::<i32>() > 50, "{lengths:?}");
    assert_eq!(deepest, 5);
    // MAX and MIN favour 9 and 0; no label is rare.
    assert!(labels.iter().all(|count| *count > 40), "{labels:?}");
}
