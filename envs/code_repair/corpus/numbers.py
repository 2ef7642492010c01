"""Programs on numbers."""

# mypy: ignore-errors
# ruff: noqa: PERF401  written as people write them, so that there is something to get wrong


def gcd(a, b):
    """The greatest common divisor."""
    a, b = abs(a), abs(b)
    while b:
        a, b = b, a % b
    return a


def primes_below(limit):
    """All primes smaller than the limit."""
    sieve = [True] * max(limit, 2)
    sieve[0] = sieve[1] = False
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            for multiple in range(number * number, limit, number):
                sieve[multiple] = False
    return [number for number in range(2, limit) if sieve[number]]


def factors(number):
    """The prime factors in ascending order, each as often as it divides."""
    found = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        found.append(number)
    return found


def to_base(number, base):
    """A number from 0 up in another base, as text; digits above nine are letters."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    if number == 0:
        return "0"
    text = ""
    while number > 0:
        text = digits[number % base] + text
        number //= base
    return text


def power_mod(base, exponent, modulus):
    """base ** exponent % modulus by squaring."""
    result = 1
    base = base % modulus
    while exponent > 0:
        if exponent % 2 == 1:
            result = result * base % modulus
        exponent //= 2
        base = base * base % modulus
    return result


def collatz(start):
    """The numbers from start to 1: half of an even one, three times an odd one plus one."""
    path = [start]
    while path[-1] != 1 and len(path) < 1000:
        if path[-1] % 2 == 0:
            path.append(path[-1] // 2)
        else:
            path.append(path[-1] * 3 + 1)
    return path


def digit_root(number):
    """The sum of the digits, taken again until one digit is left."""
    number = abs(number)
    steps = 0
    while number > 9 and steps < 100:
        total = 0
        for digit in str(number):
            total += int(digit)
        number = total
        steps += 1
    return number


def pascal(row):
    """A row of Pascal's triangle; row 0 is [1]."""
    current = [1]
    for _ in range(row):
        following = [1]
        for i in range(len(current) - 1):
            following.append(current[i] + current[i + 1])
        following.append(1)
        current = following
    return current


def is_perfect(number):
    """Is the number the sum of its divisors other than itself?"""
    if number < 2:
        return False
    total = 1
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            total += divisor
            if divisor != number // divisor:
                total += number // divisor
        divisor += 1
    return total == number


def change(amount, coins):
    """In how many ways coins, each as often as wanted, make up the amount."""
    ways = [1] + [0] * amount
    for coin in coins:
        for value in range(coin, amount + 1):
            ways[value] += ways[value - coin]
    return ways[amount]


def square_root(number):
    """The largest whole number whose square is not above `number`."""
    low, high = 0, number + 1
    while high - low > 1:
        middle = (low + high) // 2
        if middle * middle <= number:
            low = middle
        else:
            high = middle
    return low


def interest(balance, percent, years, fee):
    """Whole cents after some years of yearly interest, rounded down, minus a yearly fee, never below zero."""
    for _ in range(years):
        balance = balance + balance * percent // 100 - fee
        if balance < 0:
            balance = 0
    return balance


def leap_days(first, last):
    """How many leap years lie from the first to the last year, both included."""
    count = 0
    for year in range(first, last + 1):
        if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
            count += 1
    return count
