# exchange.py in Perl, with the modules of Debian's perl-base alone, for nodes without python3. A process a connection.
use strict;
use warnings;
use Errno qw(ECONNREFUSED ECONNRESET EHOSTUNREACH ENETUNREACH EACCES EPERM ETIMEDOUT EINPROGRESS EAGAIN EINTR);
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use Socket qw(:DEFAULT IPPROTO_TCP TCP_NODELAY);

my ($LIFE, $ROUNDS, $BULK, $ANSWER, $CHUNK) = (60, 5, 48 * 1024, 10, 1 << 20);
my $TIOCOUTQ = 0x5411;  # asm-generic/ioctls.h, as on x86-64 and arm64
my %OUTCOMES = (
    ECONNREFUSED, 'refused', ECONNRESET, 'refused', EHOSTUNREACH, 'no-route', ENETUNREACH, 'no-route',
    EACCES, 'no-route', EPERM, 'no-route', ETIMEDOUT, 'no-answer',
);
my $HIRES = eval { require Time::HiRes; 1 };  # not in perl-base
my ($GETTIME) = map { $_ =~ /^(x86_64)$/ ? 228 : 113 } split ' ', `uname -m`;  # clock_gettime in asm/unistd.h
my (%doors, $pending);
$SIG{PIPE} = 'IGNORE';
$SIG{CHLD} = 'IGNORE';

serve_orders();

sub serve_orders {
    my $until = now() + $LIFE;
    $pending = '';
    while (now() < $until) {
        my $ready = '';
        vec($ready, fileno($_), 1) = 1 for \*STDIN, map { $_->{door} } values %doors;
        select($ready, undef, undef, $until - now()) > 0 or next;
        for my $one (values %doors) {
            welcome($one) if vec($ready, fileno($one->{door}), 1);
        }
        next unless vec($ready, fileno(STDIN), 1);
        sysread(STDIN, $pending, 65536, length $pending) or last;
        obey(split ' ', $1) while $pending =~ s/^(.*)\n//;
        $until = now() + $LIFE;
    }
    kill 'KILL', -$$ if getpgrp() == $$;
    exit 0;
}

sub obey {
    my ($order, @words) = @_;
    return listen_at(@words) if $order eq 'listen';
    apart(sub { $order eq 'rate' ? rate(@words) : reach(@words) });
}

# Run it in a process of its own, which ends by itself and holds no listener.
sub apart {
    my ($work) = @_;
    my $child = fork;
    return if !defined $child || $child;
    close $_->{door} for values %doors;
    close STDIN;
    $SIG{ALRM} = 'DEFAULT';
    alarm $LIFE;
    $work->();
    exit 0;
}

sub say_line {
    my $text = join ' ', @_;
    $text =~ s/\n/ /g;
    syswrite STDOUT, "$text\n";
}

sub listen_at {
    my ($tag, $address, $token) = @_;
    socket(my $door, PF_INET, SOCK_STREAM, 0) or return say_line('failed', $tag, $!);
    bind($door, pack_sockaddr_in(0, inet_aton($address))) or return say_line('failed', $tag, $!);
    listen($door, 256) or return say_line('failed', $tag, $!);
    blocking($door, 0);  # whoever knocked may be gone
    $doors{$tag} = { door => $door, token => $token };
    my ($port) = unpack_sockaddr_in(getsockname $door);
    say_line('listening', $tag, $port);
}

sub welcome {
    my ($one) = @_;
    accept(my $guest, $one->{door}) or return;
    apart(sub { eval { serve($guest, $one->{token}) } });
    close $guest;
}

sub serve {
    my ($guest, $token) = @_;
    quick($guest);
    return if take($guest, length $token, $LIFE) ne $token;
    give($guest, $token);
    while (sysread $guest, my $word, 1) {
        return count($guest) if $word eq 'r';
        take($guest, $BULK, $LIFE) if $word eq 'b';
        give($guest, $word);
    }
}

sub count {
    my ($guest) = @_;
    my ($total, $room) = (0);
    my $size = sysread $guest, $room, $CHUNK;
    my $began = my $last = now();
    while ($size) {
        $size = sysread($guest, $room, $CHUNK) || 0;
        $total += $size;
        $last = now() if $size;
    }
    give($guest, sprintf "%d %.6f\n", $total, $last - $began);
}

sub reach {
    my ($tag, $address, $port, $token, $patience) = @_;
    my ($local, $connect_s, $fastest) = ('-', '-', '-');
    eval {
        my ($peer, $took) = dial($address, $port, $patience);
        $connect_s = sprintf '%.6f', $took;
        $local = inet_ntoa((unpack_sockaddr_in(getsockname $peer))[1]);
        greet($peer, $token);
        $fastest = fastest($peer);
        bulk($peer, $patience);
        1;
    } and return say_line('pair', $tag, 'reached', $local, $connect_s, $fastest, '');
    my ($outcome, $text) = trouble();
    say_line('pair', $tag, $outcome, $local, $connect_s, $fastest, $text);
}

sub rate {
    my ($tag, $address, $port, $token, $size, $seconds) = @_;
    my $answer = eval {
        my ($peer) = dial($address, $port, 5);
        greet($peer, $token);
        my $fastest = fastest($peer);
        give($peer, 'r');
        my ($chunk, $end) = ("\0" x $CHUNK, now() + $seconds);
        while ($size > 0 && now() < $end) {
            my $sent = syswrite $peer, $chunk, $size < $CHUNK ? $size : $CHUNK;
            defined $sent or die "mute\t$!\n";
            $size -= $sent;
        }
        shutdown $peer, 1;
        my $line = '';
        $line .= take($peer, 1, $ANSWER) until $line =~ /\n/;
        "$line $fastest";
    };
    return say_line('rate', $tag, '-', '-', '-', (trouble())[1]) unless defined $answer;
    say_line('rate', $tag, split(' ', $answer), '');
}

# A connection, and the seconds from SYN until it was there.
sub dial {
    my ($address, $port, $patience) = @_;
    socket(my $peer, PF_INET, SOCK_STREAM, 0) or die "unproven\t$!\n";
    blocking($peer, 0);
    my $began = now();
    if (!connect $peer, pack_sockaddr_in($port, inet_aton($address))) {
        $! == EINPROGRESS or die outcome_of($! + 0) . "\t$!\n";
        ready($peer, 1, $patience) or die "no-answer\tSYN-SENT for $patience s\n";
        if (my $error = unpack 'i', getsockopt($peer, SOL_SOCKET, SO_ERROR)) {
            $! = $error;
            die outcome_of($error) . "\t$!\n";
        }
    }
    my $took = now() - $began;
    blocking($peer, 1);
    quick($peer);
    return $peer, $took;
}

sub greet {
    my ($peer, $token) = @_;
    give($peer, $token);
    take($peer, length $token, $ANSWER) eq $token or die "stranger\tsomebody else answers there\n";
}

sub fastest {
    my ($peer) = @_;
    my $fastest;
    for (1 .. $ROUNDS) {
        my $began = now();
        give($peer, 'p');
        take($peer, 1, $ANSWER);
        my $took = now() - $began;
        $fastest = $took if !defined $fastest || $took < $fastest;
    }
    return sprintf '%.6f', $fastest;
}

# Full-size segments: stalled is what the peer's kernel leaves unacknowledged for so long, however busy it is.
sub bulk {
    my ($peer, $patience) = @_;
    my ($data, $before, $moved) = ('b' . "\0" x $BULK, -1, now());
    blocking($peer, 0);
    while (1) {
        my $sent = length $data ? syswrite($peer, $data) : 0;
        defined $sent || $! == EAGAIN or die "mute\t$!\n";
        substr($data, 0, $sent || 0) = '';
        my $queued = pack 'i', 0;
        ioctl $peer, $TIOCOUTQ, $queued;
        my $left = unpack('i', $queued) + length $data;
        ($before, $moved) = ($left, now()) if $left != $before;
        last unless $left;
        now() - $moved <= $patience or die "stalled\t$left of $BULK bytes not acknowledged for $patience s\n";
        select undef, undef, undef, 0.0005;
    }
    blocking($peer, 1);
    take($peer, 1, $ANSWER);
}

sub give {
    my ($peer, $bytes) = @_;
    defined syswrite $peer, $bytes or die "mute\t$!\n";
}

# So many bytes. A connection that ends before them, or is silent for too long, is mute.
sub take {
    my ($peer, $size, $patience) = @_;
    my $got = '';
    while (length $got < $size) {
        ready($peer, 0, $patience) or die "mute\tconnected, then no word for $patience s\n";
        my $more = sysread $peer, $got, $size - length $got, length $got;
        defined $more or die "mute\t$!\n";
        $more or die "mute\tconnected, then closed without a word\n";
    }
    return $got;
}

sub ready {
    my ($peer, $to_write, $patience) = @_;
    my $bits = '';
    vec($bits, fileno($peer), 1) = 1;
    return 0 < ($to_write ? select(undef, $bits, undef, $patience) : select($bits, undef, undef, $patience));
}

sub trouble {
    chomp(my $text = $@);
    my ($outcome, $seen) = split /\t/, $text, 2;
    return defined $seen ? ($outcome, $seen) : ('unproven', $text);
}

sub outcome_of { return $OUTCOMES{ $_[0] } || 'unproven' }

sub blocking {
    my ($peer, $wanted) = @_;
    my $flags = fcntl $peer, F_GETFL, 0;
    fcntl $peer, F_SETFL, $wanted ? $flags & ~O_NONBLOCK : $flags | O_NONBLOCK;
}

sub quick { setsockopt $_[0], IPPROTO_TCP, TCP_NODELAY, pack('i', 1) }

sub now {
    return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) if $HIRES;
    my $spec = pack 'qq', 0, 0;
    syscall($GETTIME, 1, $spec) == 0 or return time;
    my ($seconds, $nanoseconds) = unpack 'qq', $spec;
    return $seconds + $nanoseconds / 1e9;
}
