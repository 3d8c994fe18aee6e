<?php
// Symfony's limiter, with the fields of its documentation. POLICY: fixed_window, sliding_window or token_bucket.
require_once 'Symfony/Component/RateLimiter/autoload.php';
require_once 'Symfony/Component/Cache/autoload.php';

use Symfony\Component\Cache\Adapter\FilesystemAdapter;
use Symfony\Component\RateLimiter\RateLimiterFactory;
use Symfony\Component\RateLimiter\Storage\CacheStorage;

$policy = getenv('POLICY');
$rule = ['id' => 'api', 'policy' => $policy, 'limit' => 20];
$rule += $policy === 'token_bucket' ? ['rate' => ['interval' => '1 second', 'amount' => 2]] : ['interval' => '10 seconds'];
// One request at a time, as there is no lock.
$storage = new CacheStorage(new FilesystemAdapter('limits', 0, getenv('DIR') . '/cache'));
$limit = (new RateLimiterFactory($rule, $storage))->create('one')->consume();
header('X-RateLimit-Remaining: ' . $limit->getRemainingTokens());
header('X-RateLimit-Retry-After: ' . ($limit->getRetryAfter()->getTimestamp() - time()));
header('X-RateLimit-Limit: ' . $limit->getLimit());
http_response_code($limit->isAccepted() ? 200 : 429);
echo $limit->isAccepted() ? "ok\n" : "no\n";
