"""One file of Django. MODE: `drf`, `ninja`, or `ratelimit` (django-ratelimit)."""

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from settings import LIMIT, MODE, run_wsgi

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="a server of a test",
    INSTALLED_APPS=["rest_framework"] if MODE == "drf" else [],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    SILENCED_SYSTEM_CHECKS=["django_ratelimit.E003", "django_ratelimit.W001"],
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
)
application = get_wsgi_application()

if MODE == "drf":
    from rest_framework.decorators import api_view, throttle_classes
    from rest_framework.response import Response
    from rest_framework.throttling import AnonRateThrottle

    class Throttle(AnonRateThrottle):
        rate = "20/min"

        # Its texts know seconds, minutes, hours and days only.
        def parse_rate(self, rate):
            count, _, seconds = LIMIT.split()[0], None, int(LIMIT.split()[2])
            return int(count), seconds

    @api_view(["GET"])
    @throttle_classes([Throttle])
    def answer(request):
        return Response("ok")

    urlpatterns = [path("", answer)]
elif MODE == "ninja":
    from ninja import NinjaAPI
    from ninja.throttling import AnonRateThrottle

    api = NinjaAPI(throttle=[AnonRateThrottle("20/10s")])

    @api.get("/")
    def answer(request):
        return "ok"

    urlpatterns = [path("", api.urls)]
else:
    from django_ratelimit.decorators import ratelimit

    @ratelimit(key="ip", rate="20/10s")
    def answer(request):
        return HttpResponse("ok")

    urlpatterns = [path("", answer)]

run_wsgi(application)
