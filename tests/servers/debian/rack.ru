# rack-attack. MODE: `` (its default), `retry` (retry_after_header), `readme` (the responder of its README).
require 'rack/attack'
require 'active_support'
require 'active_support/cache'

Rack::Attack.cache.store = ActiveSupport::Cache::MemoryStore.new
Rack::Attack.throttle('ip', limit: 20, period: 10, &:ip)
case ENV['MODE']
when 'retry'
  Rack::Attack.throttled_response_retry_after_header = true
when 'readme'
  Rack::Attack.throttled_responder = lambda do |request|
    data = request.env['rack.attack.match_data']
    now = data[:epoch_time]
    fields = {
      'RateLimit-Limit' => data[:limit].to_s,
      'RateLimit-Remaining' => '0',
      'RateLimit-Reset' => (now + (data[:period] - now % data[:period])).to_s
    }
    [429, fields, ["Throttled\n"]]
  end
end
use Rack::Attack
run ->(_) { [200, { 'content-type' => 'text/plain' }, ["ok\n"]] }
