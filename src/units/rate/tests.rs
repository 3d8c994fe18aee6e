use super::*;

#[test]
fn floats_are_taken_exactly() {
    assert_eq!(Rate::per_second(5.0).fraction(), (1, 200_000_000));
    assert_eq!(Rate::per_second(0.75).fraction(), (3, 4_000_000_000));
    assert_eq!(Rate::per_second(1e9).fraction(), (1, 1));
    // The float 0.1 is not exactly a tenth, and must not become one.
    assert_ne!(Rate::per_second(0.1), Rate::every(Duration::from_secs(10)));
    assert_eq!(Rate::per_second(0.1).as_per_second(), 0.1);
}

#[test]
fn the_ends_of_the_range_are_inside() {
    for rate in ["1/day".parse(), Rate::try_per_second(1.0 / 86_400.0), Rate::try_per_second(1e9)] {
        assert!(rate.is_ok(), "{rate:?}");
    }
    assert!(Rate::from_fraction(u64::MAX, u128::from(u64::MAX)).is_ok());
    assert!(Rate::try_per_second(1.0 / 86_401.0).is_err());
    assert!(Rate::try_per_second(1e9 + 1.0).is_err());
    assert!(Rate::from_fraction(u64::MAX, u128::from(u64::MAX) - 1).is_err());
    assert!(Rate::from_fraction(1, Duration::MAX.as_nanos()).is_err());
    assert!(Rate::from_fraction(1, 0).is_err());
}

#[test]
fn rates_are_ordered_by_speed() {
    let texts =
        ["1/day", "0.5/h", "3/h", "1/min", "0.1/s", "7/min", "0.3/s", "1/s", "1000000000/s"];
    let rates = texts.map(|text| text.parse::<Rate>().expect(text));
    for (index, slow) in rates.iter().enumerate() {
        assert!(rates[index + 1..].iter().all(|fast| slow < fast), "{slow}");
        assert_eq!(slow.cmp(slow), Ordering::Equal);
    }
    // Two fractions that differ by less than a float can represent.
    let (one, other) = (
        Rate::new(u64::MAX, Duration::from_secs(u64::MAX / 2)),
        Rate::new(u64::MAX - 1, Duration::from_secs(u64::MAX / 2)),
    );
    assert!(one > other);
}

#[test]
fn text_goes_there_and_back() {
    for text in [
        "5/s",
        "100/min",
        "5000/h",
        "1/day",
        "0.3/s",
        "150/min",
        "0.1/min",
        "3/7s",
        "1/7ms",
        "401/400days",
        "1000000000/s",
    ] {
        let rate: Rate = text.parse().expect(text);
        assert_eq!(rate.to_string(), text);
    }
    let malformed = ["", "5", "5/", "/s", "5/fortnight", "five/s", "5/s/s", "5s", "5/0s", "5/1.5s"];
    for text in malformed {
        let error = text.parse::<Rate>().expect_err(text);
        assert!(!error.reason().starts_with(BOUNDS), "{text}: {error}");
    }
    for text in ["0/s", "-1/min", "5/367d", "1000000001/s"] {
        let error = text.parse::<Rate>().expect_err(text);
        assert!(error.reason().starts_with(BOUNDS), "{text}: {error}");
    }
}

/// Their quotients lie so near the middle between two floats that only the remainder of the division decides.
#[test]
fn a_rate_is_shown_as_the_nearest_float() {
    for (permits, period, float) in [
        (
            3_355_745_930_840_595_773,
            Duration::new(8_291_865_317, 536_394_183),
            404_703_381.245_659_9,
        ),
        (
            875_605_961_182_070_814,
            Duration::new(4_729_154_794, 303_755_545),
            185_150_624.005_104_27,
        ),
    ] {
        assert_eq!(Rate::new(permits, period).as_per_second(), float);
    }
}
